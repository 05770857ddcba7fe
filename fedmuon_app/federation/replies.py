"""What comes back from a client, and whether it can be used."""

from dataclasses import dataclass

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.params import Params, not_finite


@dataclass(frozen=True)
class Failure:
    """Why client i has no update this round, in its own words where it has any."""

    reason: str


Replies = dict[int, Update | Failure]
"""By client id."""


def fault(update: Update, X: Params, C: Params) -> str | None:
    """Why ``update`` cannot be used with the server's X and C; None when it can."""
    for name, got, wanted in (("X_i", update.X, X), ("ΔC", update.dC, C)):
        if got.keys() != wanted.keys():
            return f"{name} has parameters {sorted(got)}, not {sorted(wanted)}"
        for w, x in wanted.items():
            if got[w].shape != x.shape:
                return f"{name} of {w} has shape {list(got[w].shape)}, not {list(x.shape)}"
            if got[w].dtype != x.dtype:
                return f"{name} of {w} is {got[w].dtype}, not {x.dtype}"
        if bad := not_finite(got):
            return f"{name} is not finite in {', '.join(bad)}"
    return None
