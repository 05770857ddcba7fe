"""One client's round: the inner loop of Algorithm 1, for every method of the table.

Parameters, momenta and control variates are flat vectors float[d], laid out by a
:class:`fedmuon_app.algorithms.layout.Layout`; a vector that a method does without is float[0].
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedmuon_app.algorithms.layout import Layout, all_finite, numbers
from fedmuon_app.algorithms.methods import Hyper, Method
from fedmuon_app.algorithms.steps import Slots, StepRule

Batch = TypeVar("Batch")

Gradient = Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
"""(X, ξ) ↦ the loss F_i(X; ξ), a scalar without a graph, and ∇F_i(X; ξ). It must turn autograd on by itself."""


EPS_CLIP = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class NonFiniteError(ArithmeticError):
    """Training left the finite numbers; the message names the parameters."""


@dataclass(frozen=True)
class ClientState:
    """What client i keeps between its rounds.

    Attributes:
        M: M_i, the momentum (Adam's first moment is the same thing).
        C: C_i. Under momentum control it is M itself, one tensor; float[0] without a control.
        kept: the slots of the step rules: ``matrices.NAME`` and ``vectors.NAME``, or of one rule for all ``all.NAME``.
        t: steps since M and the slots were zero.
        steps: minibatches drawn in this client's life; it decides which one comes next.
    """

    M: Tensor
    C: Tensor
    kept: Slots = field(default_factory=dict)
    t: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Update:
    """What client i sends.

    Attributes:
        X: X_i, the parameters after the last local step.
        dC: C_i' - C_i; float[0] without a control.
        loss: mean training loss over the minibatches of the round, each at the X_i it was drawn for.
    """

    X: Tensor
    dC: Tensor
    loss: float


def initial_state(method: Method, layout: Layout, X: Tensor) -> ClientState:
    """M_i = 0, C_i = 0 and slots of zeros: the state of a client that has never been sampled (Theorem 1's start)."""
    M = torch.zeros_like(X)
    C = {"none": X.new_zeros(0), "gradient": torch.zeros_like(X), "momentum": M}[method.control]
    slots = {
        f"{part}.{name}": X.new_zeros(size)
        for part, rule, shapes in _rules(method, layout)
        for name, size in rule.slots(shapes).items()
    }
    return ClientState(M, C, slots)


@torch.no_grad()
def initial_gradient(
    method: Method,
    hp: Hyper,
    layout: Layout,
    gradient: Gradient[Batch],
    X: Tensor,
    state: ClientState,
    batch: Batch,
) -> tuple[Update, ClientState]:
    """The theory's start, C_i^(0) = ∇F_i(X^(0); ξ) (Theorem 2), as an update with X_i = X.

    Every client does this once before round 1; the server's step on all n updates then gives
    C^(0) = (1/n) Σ C_i^(0). Under momentum control M_i^(0) = C_i^(0), and a heavy ball starts at its
    stationary size g/α.

    Raises:
        NonFiniteError: the gradient is not finite.
    """
    loss, g = gradient(X, batch)
    if names := layout.not_finite(g):
        raise not_finite(names, K=1)
    C = g / hp.alpha if hp.heavy_ball and method.control == "momentum" else g
    M = C if method.control == "momentum" else state.M
    return Update(X, C - state.C, float(loss)), replace(state, M=M, C=C, steps=state.steps + 1)


@torch.no_grad()
def local_round(
    method: Method,
    hp: Hyper,
    layout: Layout,
    gradient: Gradient[Batch],
    X: Tensor,
    C: Tensor,
    state: ClientState,
    batches: Sequence[Batch],
) -> tuple[Update, ClientState]:
    """Take one local step per minibatch, starting from the server's X. Pure: no argument changes.

    Args:
        method: a row of METHODS.
        hp: its numbers.
        layout: which part of a vector is which parameter.
        gradient: the stochastic gradient oracle of client i.
        X: X^(r), the global parameters.
        C: C^(r), the global control variate; float[0] for a method without a control.
        state: what this client kept from its last round, or :func:`initial_state`.
        batches: ξ_i^(r,0) … ξ_i^(r,K-1), at least one.

    Returns:
        What to send, and the state to keep once that is on its way.

    Raises:
        NonFiniteError: X_i, M_i or a slot is not finite at the end.
        ValueError: no minibatch.
    """
    if not batches:
        raise ValueError("a local round needs at least one minibatch")
    K = len(batches)
    X_i, M, C_next, slots, loss = local_steps(
        method, hp, layout, gradient, X, C, (state.M, state.C, state.kept), state.t, batches
    )
    kept = [X_i, M, *slots.values()]
    mean, *sums = numbers([loss, *(x.sum().to(loss.dtype) for x in kept)])  # the one time that a GPU is waited for
    if not all(map(math.isfinite, sums)) and (names := layout.not_finite(X_i, M) or slots_not_finite(layout, slots)):
        raise not_finite(names, K)
    return Update(X_i, C_next - state.C, mean), next_state(method, hp, state, K, M, C_next, slots)


def slots_not_finite(layout: Layout, slots: Slots) -> str:
    """Names of some parameters for which a slot holds a NaN or an infinity; empty when all is well."""
    for name, x in slots.items():
        if not all_finite(x):
            parts = {"matrices": Layout(layout.matrices, {}), "vectors": Layout({}, layout.vectors), "all": layout}
            own = parts[name.partition(".")[0]]
            return own.not_finite(x) if len(x) == len(own) else f"{name} of the step rule"
    return ""


def next_state(
    method: Method, hp: Hyper, state: ClientState, K: int, M: Tensor, C_next: Tensor, slots: Slots
) -> ClientState:
    """What client i keeps after the K steps of :func:`local_steps` that began in ``state``."""
    t = (state.t if hp.keep_momentum else 0) + K
    return ClientState(M, M if method.control == "momentum" else C_next, slots, t, state.steps + K)


def local_steps(
    method: Method,
    hp: Hyper,
    layout: Layout,
    gradient: Gradient[Batch],
    X: Tensor,
    C: Tensor,
    kept: tuple[Tensor, Tensor, Slots],
    t: int | Tensor,
    batches: Sequence[Batch],
) -> tuple[Tensor, Tensor, Tensor, Slots, Tensor]:
    """The arithmetic of :func:`local_round`, from tensors to tensors without a look at their values.

    So it can be batched over clients by torch.func.vmap. Arguments as in :func:`local_round`, but of the client's state
    M_i, C_i and the slots as ``kept``, and ``t``.

    Returns:
        X_i, M_i, C_i' (M_i itself under momentum control), the slots, and the mean loss.
    """
    M, C_i, slots = kept
    if not hp.keep_momentum:
        M, slots, t = torch.zeros_like(M), {name: torch.zeros_like(x) for name, x in slots.items()}, 0
    weight = 1.0 if hp.heavy_ball else hp.alpha
    X_i, g_sum, losses, rules = X, M.new_zeros(()), [], _rules(method, layout)
    for batch in batches:
        loss, g = gradient(X_i, batch)
        losses.append(loss)
        g = _regularised(hp, g, X_i, X)
        corrected = (g - C_i).add_(C) if method.control == "gradient" else g
        M = ((1 - hp.alpha) * M).add_(corrected, alpha=weight)  # momentum
        G = (M - C_i).add_(C) if method.control == "momentum" else M  # bias correction
        if slots and method.control == "momentum":
            corrected = (g - C_i).add_(C)
        t = t + 1
        X_i, slots = _step(rules, hp, layout.in_matrices, X_i, G, corrected, slots, t)
        if method.control == "gradient":
            g_sum = g_sum + g
    C_next = {"none": C_i, "gradient": g_sum / len(batches), "momentum": M}[method.control]
    return X_i, M, C_next, slots, torch.stack(losses).mean()


Rules = list[tuple[str, StepRule, list[torch.Size]]]


def _step(
    rules: Rules, hp: Hyper, m: int, X_i: Tensor, G: Tensor, g: Tensor, slots: Slots, t: int | Tensor
) -> tuple[Tensor, Slots]:
    """(1 - ηλ) X_i + η·D, and the slots after it; the first ``m`` numbers are the matrices'."""
    stepped: list[Tensor] = []
    after: dict[str, Tensor] = {}
    for part, rule, shapes in rules:
        where = {"matrices": slice(0, m), "vectors": slice(m, None), "all": slice(None)}[part]
        own = {name: slots[f"{part}.{name}"] for name in rule.slots(shapes)}
        D, kept = rule(G[where], g[where], X_i[where], own, t, shapes)
        stepped.append(D)
        after |= {f"{part}.{name}": x for name, x in kept.items()}
    D = stepped[0] if len(stepped) == 1 else torch.cat(stepped)
    if hp.lr == hp.vector_lr:
        return _moved(hp, X_i, D, hp.lr), after
    parts = ((slice(0, m), hp.lr), (slice(m, None), hp.vector_lr))
    return torch.cat([_moved(hp, X_i[where], D[where], lr) for where, lr in parts]), after


def _moved(hp: Hyper, X_i: Tensor, D: Tensor, lr: float) -> Tensor:
    return torch.add((1 - lr * hp.weight_decay) * X_i if hp.weight_decay else X_i, D, alpha=lr)


def _rules(method: Method, layout: Layout) -> Rules:
    """The parts of a vector that rules step by themselves, their names and shapes: one, if both rules are the same."""
    matrices, vectors = layout.matrix_shapes, list(layout.vectors.values())
    if method.matrix_step == method.vector_step:
        return [("all", method.matrix_step, [*matrices, *vectors])]
    return [("matrices", method.matrix_step, matrices), ("vectors", method.vector_step, vectors)]


def _regularised(hp: Hyper, g: Tensor, X_i: Tensor, X: Tensor) -> Tensor:
    """The gradient of the loss with the proximal term, then clipped."""
    if hp.prox:
        g = g + hp.prox * (X_i - X)
    if hp.clip is not None:
        g = g * (hp.clip / (torch.linalg.vector_norm(g) + EPS_CLIP)).clamp(max=1.0)
    return g


def not_finite(names: str, K: int) -> NonFiniteError:
    """The error for these parameters, looked at once after K local steps: what is not finite stays so."""
    return NonFiniteError(
        f"not finite after {K} local steps in {names}: the step size is too large for this model, or the data holds NaN"
    )
