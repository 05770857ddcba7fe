"""What values a configuration may have: one list of rules."""

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmuon_app.config.files import flat, names
from fedmuon_app.config.schema import OWN, Algorithm, Config, Federation, Stop
from fedmuon_app.errors import InputError

# names that stand in tables of modules which import torch; that they are the same is a test
SCALES = ("moonlight", "jordan", "ratio", "one")
SCHEDULES = ("constant", "linear", "cosine", "step")
AUGMENTATIONS = ("none", "crop", "crop_flip")
TRACKERS = ("none", "tensorboard", "mlflow", "wandb")
AGGREGATES = ("mean", "multi_krum", "trimmed_mean", "median")

Rule = tuple[str, object, bool, str]
"""A key, its value, whether that is allowed, and what is."""

POSITIVE, UNIT = "must be a positive number", "must be at least 1"


def check(c: Config) -> None:
    """Refuse values that no run could use.

    Raises:
        InputError: names the key, its value, and what is allowed.
    """
    a = c.algorithm
    rules = [
        *_run(c),
        *_stop(c.stop),
        *_federation(c.federation),
        *_rounds(c),
        *_algorithm(a, c.rounds),
        *_data(c),
        *_engine(c),
        *_own(c),
    ]
    for key, number in flat(asdict(c)).items():
        most = 2**63 if key == "seed" else 2**31
        if isinstance(number, int) and abs(number) >= most:
            raise InputError(f"{key} = {number}: must be below 2^{most.bit_length() - 1}")
    for key, value, holds, rule in rules:
        if not holds:
            raise InputError(f"{key} = {value}: {rule}")


def _own(c: Config) -> list[Rule]:
    """What must hold where clients bring their own data."""
    if c.partition.name != OWN:
        rule = "needs clients that bring their data (engine=deployment partition=own)"
        return [("dataset", c.dataset.name, c.dataset.name != "none", rule)]
    rules: list[Rule] = [
        ("engine", c.engine.name, c.engine.name == "deployment", "must be deployment, whose nodes name their folders"),
        ("dataset", c.dataset.name, c.dataset.name in ("image_folder", "none"), "must be image_folder or none"),
        ("dataset.classes", c.dataset.classes, bool(c.dataset.classes), "must name the classes, in one order for all"),
        (
            "dataset.validation",
            c.dataset.validation,
            not c.dataset.validation,
            "must be 0: the server has no training data",
        ),
        ("evaluation.diagnostics", c.evaluation.diagnostics, c.evaluation.diagnostics is None, "must be null"),
    ]
    return [(key, value, holds, f"{rule} with partition = own") for key, value, holds, rule in rules]


def _run(c: Config) -> list[Rule]:
    return [
        ("rounds", c.rounds, c.rounds >= 1, UNIT),
        ("seed", c.seed, c.seed >= 0, "must not be negative"),
        ("device", c.device, re.fullmatch(r"auto|cpu|cuda(:\d+)?", c.device) is not None, "must be auto, cpu or cuda"),
        _one_of("compute", c.compute, ("float32", "bfloat16")),
    ]


def _federation(f: Federation) -> list[Rule]:
    n, S, bound, few = f.num_clients, f.clients_per_round, f.norm_bound, f.byzantine
    return [
        ("federation.num_clients", n, n >= 1, UNIT),
        ("federation.clients_per_round", S, 1 <= S <= n, f"must lie between 1 and federation.num_clients = {n}"),
        ("federation.connect_timeout", f.connect_timeout, _above_0(f.connect_timeout), POSITIVE),
        ("federation.round_timeout", f.round_timeout, _above_0(f.round_timeout), POSITIVE),
        (
            "federation.min_replies",
            f.min_replies,
            f.min_replies is None or 1 <= f.min_replies <= S,
            f"must lie between 1 and federation.clients_per_round = {S}, or be null",
        ),
        ("federation.grace", f.grace, 0 <= f.grace < math.inf, "must not be negative"),
        ("federation.norm_bound", bound, bound is None or 1 < bound < math.inf, "must be a number above 1, or null"),
        _named("federation.aggregate", f.aggregate, AGGREGATES),
        (
            "federation.byzantine",
            few,
            few >= 0 and (f.aggregate not in ("multi_krum", "trimmed_mean") or 2 * few < S),
            f"must be below half of federation.clients_per_round = {S}",
        ),
    ]


def _rounds(c: Config) -> list[Rule]:
    every, examples, asked = c.checkpoint.every, c.evaluation.diagnostics, c.evaluation.clients
    return [
        ("local.steps", c.local.steps, c.local.steps >= 1, UNIT),
        ("local.batch_size", c.local.batch_size, c.local.batch_size >= 1, UNIT),
        ("evaluation.every", c.evaluation.every, c.evaluation.every >= 1, UNIT),
        (
            "evaluation.clients",
            asked,
            asked in ("none", "all") or (asked.isdecimal() and int(asked) >= 1),
            "must be none, all, or a number of clients",
        ),
        (
            "evaluation.clients",
            asked,
            asked == "none" or c.dataset.client_validation > 0,
            "needs examples at the clients: set dataset.client_validation, e.g. 0.1",
        ),
        ("evaluation.diagnostics", examples, examples is None or examples >= 1, UNIT + ", or null"),
        _named("tracker", c.tracker, TRACKERS),
        ("checkpoint.every", every, every is None or every >= 1, UNIT + ", or null"),
    ]


def _stop(s: Stop) -> list[Rule]:
    return [
        ("stop.accuracy", s.accuracy, s.accuracy is None or 0 < s.accuracy <= 1, "must lie in (0, 1], or be null"),
        ("stop.value", s.value, s.value is None or math.isfinite(s.value), "must be a number, or null"),
        ("stop.patience", s.patience, s.patience is None or s.patience >= 1, UNIT + ", or null"),
        ("stop.delta", s.delta, 0 <= s.delta < math.inf, "must not be negative"),
        ("stop.delta", s.delta, s.delta == 0 or s.patience is not None, "must be 0 where stop.patience is null"),
        (
            "stop.metric",
            s.metric,
            s.metric is None or s.value is not None or s.patience is not None,
            "must be null where stop.value and stop.patience are",
        ),
        ("stop.seconds", s.seconds, s.seconds is None or _above_0(s.seconds), POSITIVE + " or null"),
        ("stop.bytes", s.bytes, s.bytes is None or _above_0(s.bytes), POSITIVE + " or null"),
    ]


def _algorithm(a: Algorithm, R: int) -> list[Rule]:
    return [
        (
            "algorithm",
            a.name,
            a.name in names("algorithm") or a.step.get("_target_") is not None,
            f"must be one of {', '.join(names('algorithm'))}, or have an algorithm.step._target_",
        ),
        (
            "algorithm.colour",
            a.colour,
            re.fullmatch("#[0-9a-fA-F]{6}", a.colour or "#000000") is not None,
            "must be #RRGGBB",
        ),
        ("algorithm.lr", a.lr, _above_0(a.lr), POSITIVE),
        ("algorithm.vector_lr", a.vector_lr, a.vector_lr is None or _above_0(a.vector_lr), POSITIVE + " or null"),
        _named("algorithm.schedule", a.schedule, SCHEDULES),
        ("algorithm.warmup", a.warmup, 0 <= a.warmup < R, f"must lie between 0 and rounds - 1 = {R - 1}"),
        ("algorithm.final", a.final, 0 <= a.final <= 1, "must lie in [0, 1]"),
        ("algorithm.weight_decay", a.weight_decay, 0 <= a.weight_decay < math.inf, "must not be negative"),
        ("algorithm.clip", a.clip, a.clip is None or _above_0(a.clip), POSITIVE + " or null"),
        ("algorithm.prox", a.prox, 0 <= a.prox < math.inf, "must not be negative"),
        ("algorithm.alpha", a.alpha, 0 < a.alpha <= 1, "must lie in (0, 1]"),
        _one_of("algorithm.momentum", a.momentum, ("ema", "heavy_ball")),
        _one_of("algorithm.control", a.control, (None, "none", "gradient", "momentum")),
        _one_of("algorithm.start", a.start, ("zeros", "gradient")),
        ("algorithm.outer_lr", a.outer_lr, _above_0(a.outer_lr), POSITIVE),
        ("algorithm.outer_momentum", a.outer_momentum, 0 <= a.outer_momentum < 1, "must lie in [0, 1)"),
        ("algorithm.beta2", a.beta2, 0 <= a.beta2 < 1, "must lie in [0, 1)"),
        ("algorithm.eps", a.eps, _above_0(a.eps), POSITIVE),
        _named("algorithm.lmo.norm", a.lmo.norm, ("spectral", "euclidean", "max")),
        ("algorithm.lmo.steps", a.lmo.steps, a.lmo.steps >= 0, "must be at least 0"),
        _one_of("algorithm.lmo.dtype", a.lmo.dtype, ("float32", "bfloat16")),
        ("algorithm.lmo.coefficients", a.lmo.coefficients, len(a.lmo.coefficients) == 3, "must be three numbers"),
        _one_of("algorithm.lmo.scale", a.lmo.scale, SCALES),
    ]


def _data(c: Config) -> list[Rule]:
    own = c.partition.name == OWN
    return [
        _target("dataset", None if own else {"_target_": c.dataset._target_}),
        _target("partition", None if own else {"_target_": c.partition._target_}),
        _target("task", c.task),
        ("dataset.length", c.dataset.length, c.dataset.length >= 1, UNIT),
        ("dataset.validation", c.dataset.validation, 0 <= c.dataset.validation < 1, "must lie in [0, 1)"),
        (
            "dataset.client_validation",
            c.dataset.client_validation,
            0 <= c.dataset.client_validation < 1,
            "must lie in [0, 1)",
        ),
        _one_of("dataset.augment", c.dataset.augment, AUGMENTATIONS),
        ("dataset.size", c.dataset.size, c.dataset.size >= 1, UNIT),
        ("dataset.channels", c.dataset.channels, c.dataset.channels in (1, 3), "must be 1 or 3"),
        ("partition.beta", c.partition.beta, _above_0(c.partition.beta), POSITIVE),
        ("partition.classes_per_client", c.partition.classes_per_client, c.partition.classes_per_client >= 1, UNIT),
        ("partition.shards_per_client", c.partition.shards_per_client, c.partition.shards_per_client >= 1, UNIT),
    ]


def _engine(c: Config) -> list[Rule]:
    e, memory = c.engine, c.engine.stack_memory
    return [
        _one_of("engine", e.name, names("engine")),
        ("engine.threads", e.threads, e.threads >= 1, UNIT),
        ("engine.workers", e.workers, e.workers is None or e.workers >= 0, "must be null or >= 0"),
        (
            "engine.devices",
            e.devices,
            all(re.fullmatch(r"cpu|cuda(:\d+)?", one) for one in e.devices or ["cpu"]) and e.devices != [],
            "must name devices, cpu or cuda:N, or be null",
        ),
        _one_of("engine.states", e.states, ("auto", "device", "host")),
        ("engine.stack_memory", memory, memory is None or _above_0(memory), POSITIVE + " or null"),
        ("engine.cpus_per_client", e.cpus_per_client, e.cpus_per_client >= 1, UNIT),
        ("engine.gpus_per_client", e.gpus_per_client, e.gpus_per_client >= 0, "must not be negative"),
        (
            "engine.ray",
            e.ray,
            e.ray is None or re.fullmatch(r"auto|\S+:\d+", e.ray) is not None,
            "must be HOST:PORT, auto, or null",
        ),
        (
            "engine.shared",
            e.shared,
            e.shared is None or Path(e.shared).is_absolute(),
            "must be an absolute path: it is the same on all machines",
        ),
    ]


def _above_0(x: float) -> bool:
    return 0 < x < math.inf


def _target(key: str, node: object) -> Rule:
    there = node is None or (isinstance(node, dict) and isinstance(node.get("_target_"), str))
    return f"{key}._target_", None, there, "must name a class or a function: module.name"


def _named(key: str, value: object, allowed: Any) -> Rule:
    """One of these names, or something with a ``_target_``."""
    return _target(key, value) if isinstance(value, dict) else _one_of(key, value, allowed)


def _one_of(key: str, value: object, allowed: Any) -> Rule:
    names = ", ".join("null" if name is None else name for name in allowed)
    return key, value, value in allowed, f"must be one of {names}"
