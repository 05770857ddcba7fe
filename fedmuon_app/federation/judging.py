"""X judged where the data is: by each client, on examples of its own that are never trained on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedmuon_app.data.examples import Indices
from fedmuon_app.errors import RunError
from fedmuon_app.federation.protocol import CallId, Failure
from fedmuon_app.federation.stopping import sign
from fedmuon_app.seeds import rng


@dataclass(frozen=True)
class Judged:
    """What a client says of X: the metric that decides which X is best, the mean loss, and on how many examples."""

    value: float
    loss: float
    examples: int


class NothingHeldError(RunError):
    """A client has too few examples to hold any out."""

    def __init__(self) -> None:
        super().__init__("too few examples to hold any out (dataset.client_validation)")


Judge = Callable[[CallId, Sequence[int], Tensor], Mapping[int, Judged | Failure]]
"""An engine: (call_id, clients, X) ↦ what each of them says of X."""


def hold_out(parts: Sequence[Indices], share: float, seed: int) -> tuple[list[Indices], list[Indices]]:
    """A ``share`` of each client's examples, drawn by the seed, apart; at least one is left to train on.

    Returns:
        What is trained on, and what is held out, each in the order it had.
    """
    kept, held = [], []
    for client, part in enumerate(parts):
        cut = min(round(share * len(part)), max(0, len(part) - 1))
        order = rng(seed, "client validation", client).permutation(len(part)) if cut else np.arange(len(part))
        kept.append(part[np.sort(order[cut:])])
        held.append(part[np.sort(order[:cut])])
    return kept, held


def judges(seed: int, round_: int, clients: Sequence[int], how: str) -> list[int]:
    """Who is asked after ``round_``: ``how`` is none, all, or a number of clients, drawn by the seed."""
    if how in ("none", "all"):
        return sorted(clients) if how == "all" else []
    count = min(int(how), len(clients))
    return sorted(rng(seed, "judges", round_).choice(sorted(clients), count, replace=False).tolist())


SPREAD = {
    f"client_{metric}{part}": what
    for metric in ("accuracy", "loss")
    for part, what in (
        ("", f"{metric} at the clients"),
        ("_worst", "worst client"),
        ("_p10", "10th percentile of clients"),
        ("_p90", "90th percentile of clients"),
        ("_std", "deviation over clients"),
    )
}
"""What of it is drawn and tabled: keys in a line of metrics.jsonl, and what they are."""


def spread_keys(metric: str) -> list[str]:
    """What :func:`spread` finds, by name, but for the number of clients."""
    name = f"client_{metric.removeprefix('test_')}"
    return [name, "client_loss", *(f"{name}_{part}" for part in ("mean", "std", "worst", "p10", "p90"))]


def spread(found: Mapping[int, Judged], metric: str) -> dict[str, float]:
    """How well X does over the clients, for a line of metrics.jsonl; the mean weighs examples alike, then clients."""
    if not found:
        return {"clients_judged": 0}
    rows = np.array([(one.value, one.loss, one.examples) for one in found.values()], dtype=float)
    value, loss, weight = rows.T
    means = [np.average(value, weights=weight), np.average(loss, weights=weight), value.mean(), value.std()]
    worst = (sign(metric) * value).min() * sign(metric)
    measured = map(float, [*means, worst, *np.percentile(value, [10, 90])])
    return {"clients_judged": len(found), **dict(zip(spread_keys(metric), measured, strict=True))}
