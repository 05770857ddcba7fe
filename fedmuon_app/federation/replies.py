"""What comes back from a client, and whether it can be used."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import all_finite


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
