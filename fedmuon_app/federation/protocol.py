"""What the server and a client say to each other: which rounds count, and what comes back.

A reply can be lost, late or refused, and a server can fall back to its last checkpoint. The client has moved its
C_i each time, and C = (1/n) Σ C_i holds only if it moves back. So each call says which of the client's rounds the
server has counted; the client goes on from there, whatever it did since.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import finite, numbers


class CallId(NamedTuple):
    """When a client was called; later ones are greater.

    Attributes:
        attempt: at the run: 1, and one more each time it is resumed.
        round: r; 0 asks for C_i^(0).
    """

    attempt: int
    round: int

    def __str__(self) -> str:
        return f"round {self.round}" + (f" (resume {self.attempt - 1})" if self.attempt > 1 else "")


NEVER = CallId(0, 0)


class Acknowledged(NamedTuple):
    """What the server has counted of a client.

    Attributes:
        last: when the client was called for the last reply of its that went into X and C.
        saved: the same as of the last checkpoint: where a resumed run would let it go on.
    """

    last: CallId = NEVER
    saved: CallId = NEVER


Cohort = Mapping[int, Acknowledged]
"""The clients of a round by id, in ascending order."""


@dataclass(frozen=True)
class Failure:
    """Why client i has no update this round, in its own words where it has any."""

    reason: str


Replies = dict[int, Update | Failure]
"""By client id."""


def faults(updates: Mapping[int, Update], X: Tensor, C: Tensor) -> dict[int, str]:
    """The clients whose updates cannot be used with the server's X and C, and why."""
    reasons: dict[int, str] = {}
    for i, u in updates.items():
        for name, got, wanted in (("X_i", u.X, X), ("ΔC", u.dC, C)):
            if got.shape != wanted.shape:
                reasons.setdefault(i, f"{name} has shape {list(got.shape)}, not {list(wanted.shape)}")
            elif got.dtype != wanted.dtype:
                reasons.setdefault(i, f"{name} is {got.dtype}, not {wanted.dtype}")
    read = [(i, name, x) for i, u in updates.items() if i not in reasons for name, x in (("X_i", u.X), ("ΔC", u.dC))]
    for (i, name, _), sound in zip(read, finite([x for _, _, x in read]), strict=True):
        if not sound:
            reasons.setdefault(i, f"{name} is not finite")
    for i, u in updates.items():
        if not math.isfinite(u.loss):
            reasons.setdefault(i, "its loss is not finite")
    return reasons


def outliers(updates: Mapping[int, Update], X: Tensor, bound: float) -> dict[int, str]:
    """The clients whose ‖X_i - X‖ or ‖ΔC_i‖ is above ``bound`` times the median of the round's, and why.

    Of fewer than three updates nobody can say which is the odd one: they all pass.
    """
    if len(updates) < 3:
        return {}
    reasons: dict[int, str] = {}
    for name, lengths in (
        ("‖X_i - X‖", [(u.X - X).norm() for u in updates.values()]),
        ("‖ΔC_i‖", [u.dC.norm() for u in updates.values()]),
    ):
        norms = dict(zip(updates, numbers(lengths), strict=True))
        most = bound * statistics.median(norms.values())
        reasons |= {
            i: f"{name} = {norm:.3g} is more than {bound:g} times the round's median"
            for i, norm in norms.items()
            if norm > most
        }
    return reasons
