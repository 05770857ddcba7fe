"""How the replies of a round are taken together: their mean, or what holds against clients that mean no good."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.server import parts


@torch.no_grad()
def trimmed_mean(rows: Sequence[Tensor], f: int) -> Tensor:
    """The mean of each coordinate without its f largest and f smallest values (Yin et al. 2018).

    Args:
        rows: k vectors, float[d] each.
        f: at most (k-1)/2, and no more is taken: from there on it is the median.
    """
    cut = min(f, (len(rows) - 1) // 2)
    out = torch.empty_like(rows[0])
    for part in parts(out):
        stacked = torch.stack([row[part] for row in rows]).sort(0).values
        out[part] = stacked[cut : len(rows) - cut].mean(0)
    return out


def median(rows: Sequence[Tensor]) -> Tensor:
    """The median of each coordinate; of an even number of rows the mean of the two in the middle."""
    return trimmed_mean(rows, len(rows))


@torch.no_grad()
def multi_krum(updates: Mapping[int, Update], X: Tensor, f: int) -> list[int]:
    """The k - f clients whose updates lie closest to their neighbours' (Blanchard et al. 2017).

    A client's score is the sum of the squared distances to its k - f - 2 nearest. A distance is
    the X_i - X's plus the ΔC_i's, each as a share of its own mean over all pairs: they have different units.

    Args:
        updates: k of them, by client id.
        X: the server's, float[d].
        f: how many to leave out.
    """
    clients, k = sorted(updates), len(updates)
    distances = torch.zeros(k, k, dtype=torch.float64)
    for rows in ([updates[i].X - X for i in clients], [updates[i].dC for i in clients]):
        squared = torch.zeros(k, k, dtype=torch.float64)
        for a in range(k):
            for b in range(a):
                squared[a, b] = squared[b, a] = (rows[a] - rows[b]).double().square().sum().cpu()
        mean = squared.sum() / max(1, k * (k - 1))
        distances += squared / mean if mean > 0 else squared
    near = distances.sort(1).values[:, 1 : 1 + max(1, k - f - 2)]  # the first is the client itself
    order = sorted(range(k), key=lambda a: (float(near[a].sum()), a))
    return sorted(clients[a] for a in order[: max(1, k - f)])


class Rule:
    """All replies count, and what counts is their mean: the paper's. Rules of one's own override either method."""

    by_coordinate: ClassVar[bool] = False
    """Whether :meth:`centre` is to be used. C is then the centre of all C_i, which the server keeps for it."""

    def kept(self, updates: Mapping[int, Update], X: Tensor) -> Sequence[int]:
        """The clients whose replies count.

        Args:
            updates: at least one, by client id.
            X: the server's, float[d].
        """
        return list(updates)

    def centre(self, rows: Sequence[Tensor]) -> Tensor:
        """One float[d] in place of the mean of at least one."""
        return torch.stack(list(rows)).mean(0)


@dataclass(frozen=True)
class MultiKrum(Rule):
    """Leave out the f clients that are farthest from the others, where there are three or more."""

    f: int

    def kept(self, updates: Mapping[int, Update], X: Tensor) -> Sequence[int]:
        """See :func:`multi_krum`."""
        return multi_krum(updates, X, self.f) if len(updates) > 2 else list(updates)


@dataclass(frozen=True)
class TrimmedMean(Rule):
    """The trimmed mean of each coordinate."""

    f: int
    by_coordinate = True

    def centre(self, rows: Sequence[Tensor]) -> Tensor:
        """See :func:`trimmed_mean`."""
        return trimmed_mean(rows, self.f)


@dataclass(frozen=True)
class Median(Rule):
    """The median of each coordinate."""

    by_coordinate = True

    def centre(self, rows: Sequence[Tensor]) -> Tensor:
        """See :func:`median`."""
        return median(rows)


RULES: dict[str, Callable[[int], Rule]] = {
    "mean": lambda f: Rule(),
    "multi_krum": MultiKrum,
    "trimmed_mean": TrimmedMean,
    "median": lambda f: Median(),
}
"""By name, from f: how many clients of a round may mean no good."""
