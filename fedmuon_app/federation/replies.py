"""What comes back from a client, and whether it can be used."""

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
    return None
