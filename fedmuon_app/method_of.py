"""From a configuration to the method: the row of the table, or what is named in its place, and its numbers."""

from collections.abc import Sequence
from typing import cast

import torch

from fedmuon_app.algorithms.aggregation import RULES, Rule
from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.methods import METHODS, Control, Hyper, Method
from fedmuon_app.algorithms.schedules import Schedule
from fedmuon_app.algorithms.steps import Adam, Muon, Sgd, StepRule
from fedmuon_app.config import Config, build_target
from fedmuon_app.errors import InputError


def build_method(c: Config) -> Method:
    """The row of the table, with what ``algorithm`` says in place of its own: step rules, their numbers, the control.

    Raises:
        InputError: a step rule cannot be built, or there is no control variate to start.
    """
    a = c.algorithm
    row = METHODS.get(a.name, Method(Sgd(), Sgd()))
    matrix, vector = (
        _with_numbers(c, own) if node.get("_target_") is None else build_target(f"algorithm.{key}", node)
        for key, node, own in (("step", a.step, row.matrix_step), ("vector_step", a.vector_step, row.vector_step))
    )
    method = Method(matrix, vector, cast(Control, a.control or row.control))
    if a.start == "gradient" and method.control == "none":
        raise InputError(f"algorithm.start = gradient: {a.name} has no control variate to start; leave it at zeros")
    return method


def _with_numbers(c: Config, rule: StepRule) -> StepRule:
    """A rule of the table with its numbers of this run."""
    a = c.algorithm
    if isinstance(rule, Muon):
        return build_muon(c)
    return Adam(a.alpha, a.momentum == "heavy_ball", a.beta2, a.eps) if isinstance(rule, Adam) else rule


def build_muon(c: Config) -> Muon:
    """Muon's step, as ``algorithm.lmo`` says."""
    lmo = c.algorithm.lmo
    p, q, s = lmo.coefficients
    norm = build_target("algorithm.lmo.norm", lmo.norm) if isinstance(lmo.norm, dict) else lmo.norm
    return Muon(norm, None if lmo.exact else lmo.steps, (p, q, s), lmo.dtype == "bfloat16", lmo.scale)


def build_rule(c: Config) -> Rule:
    """How the server takes replies together, as ``federation.aggregate`` says.

    Raises:
        InputError: a rule of one's own cannot be built, is none, or fails at the first try.
    """
    said = c.federation.aggregate
    if not isinstance(said, dict):
        return RULES[said](c.federation.byzantine)
    name, rule = f"federation.aggregate._target_ = {said['_target_']}", build_target("federation.aggregate", said)
    if not isinstance(rule, Rule):
        raise InputError(f"{name}: it must be a fedmuon_app.algorithms.aggregation.Rule")
    x = torch.ones(3)
    try:
        kept = set(rule.kept({1: Update(x, x, 1.0), 2: Update(-x, x, 1.0)}, x))
        shape = rule.centre([x, -x]).shape
    except Exception as error:  # whatever somebody's rule does
        raise InputError(f"{name}: it cannot take replies together ({type(error).__name__}: {error})") from error
    if not kept <= {1, 2} or shape != x.shape:
        raise InputError(f"{name}: it must keep some of the clients, and give one vector of the size it was given")
    return rule


def try_rules(c: Config, method: Method, layout: Layout) -> None:
    """Try the step rules of somebody's own, if there are any.

    Raises:
        InputError: one is none.
    """
    for key, node, rule, shapes in (
        ("step", c.algorithm.step, method.matrix_step, layout.matrix_shapes),
        ("vector_step", c.algorithm.vector_step, method.vector_step, list(layout.vectors.values())),
    ):
        if node.get("_target_") is not None:
            try_rule(f"algorithm.{key}._target_ = {node['_target_']}", rule, shapes)


def try_rule(name: str, rule: StepRule, shapes: Sequence[torch.Size]) -> None:
    """Let a rule of somebody's own take a step, before anything trains.

    Raises:
        InputError: it is none, or fails, or gives other than a direction and its slots.
    """
    d = sum(shape.numel() for shape in shapes)
    try:
        slots = {key: torch.zeros(size) for key, size in rule.slots(shapes).items()}
        G, g, X = torch.ones(3, d)
        D, kept = rule(G, g, X, slots, 1, shapes)
        found = [D.shape, *(kept[key].shape for key in slots)]
    except Exception as error:  # whatever somebody's rule does
        raise InputError(f"{name}: it cannot take a step ({type(error).__name__}: {error})") from error
    if found != [G.shape, *(x.shape for x in slots.values())] or set(kept) != set(slots):
        raise InputError(f"{name}: it must give a direction of {d} numbers, and each of its slots in the size it had")


def build_hyper(c: Config) -> Hyper:
    """The numbers of the method that belong to no step rule."""
    a = c.algorithm
    return Hyper(
        lr=a.lr,
        vector_lr=a.lr if a.vector_lr is None else a.vector_lr,
        alpha=a.alpha,
        heavy_ball=a.momentum == "heavy_ball",
        keep_momentum=a.keep_momentum,
        schedule=build_target("algorithm.schedule", a.schedule)
        if isinstance(a.schedule, dict)
        else Schedule(a.schedule, c.rounds, a.warmup, a.final),
        weight_decay=a.weight_decay,
        clip=a.clip,
        prox=a.prox,
    )
