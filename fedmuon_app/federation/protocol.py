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
from fedmuon_app.algorithms.layout import all_finite


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


def fault(update: Update, X: Tensor, C: Tensor) -> str | None:
    """Why ``update`` cannot be used with the server's X and C; None when it can."""
    for name, got, wanted in (("X_i", update.X, X), ("ΔC", update.dC, C)):
        if got.shape != wanted.shape:
            return f"{name} has shape {list(got.shape)}, not {list(wanted.shape)}"
        if got.dtype != wanted.dtype:
            return f"{name} is {got.dtype}, not {wanted.dtype}"
        if not all_finite(got):
            return f"{name} is not finite"
    return None if math.isfinite(update.loss) else "its loss is not finite"


def outliers(updates: Mapping[int, Update], X: Tensor, bound: float) -> dict[int, str]:
    """The clients whose ‖X_i - X‖ or ‖ΔC_i‖ is above ``bound`` times the median of the round's, and why.

    Of fewer than three updates nobody can say which is the odd one: they all pass.
    """
    if len(updates) < 3:
        return {}
    reasons: dict[int, str] = {}
    for name, norms in (
        ("‖X_i - X‖", {i: float((u.X - X).norm()) for i, u in updates.items()}),
        ("‖ΔC_i‖", {i: float(u.dC.norm()) for i, u in updates.items()}),
    ):
        most = bound * statistics.median(norms.values())
        reasons |= {
            i: f"{name} = {norm:.3g} is more than {bound:g} times the round's median"
            for i, norm in norms.items()
            if norm > most
        }
    return reasons
