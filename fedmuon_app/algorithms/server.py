"""The server's step: X and C from the clients' updates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import Method

CACHED = 2**17  # numbers: two sums and an update of them stay in a processor's second cache


@dataclass(frozen=True)
class Server:
    """What the server holds: X float[d], C, and the outer momentum U; float[0] where the method has none."""

    X: Tensor
    C: Tensor
    U: Tensor

    def to(self, device: torch.device) -> "Server":
        """The same on ``device``."""
        return Server(self.X.to(device), self.C.to(device), self.U.to(device))


def initial_server(method: Method, X: Tensor, outer_momentum: float = 0.0) -> Server:
    """X^(0) with C^(0) = 0 and no outer momentum yet."""
    C, U = (torch.zeros_like(X) if there else X.new_zeros(0) for there in (method.control != "none", outer_momentum))
    return Server(X, C, U)


@torch.no_grad()
def server_step(
    server: Server, updates: Sequence[Update], n: int, outer_lr: float = 1.0, outer_momentum: float = 0.0
) -> Server:
    """The last two lines of Algorithm 1, with an outer step; pure.

        C ← C + (1/n) Σ ΔC_i        Δ = (1/n) Σ (X_i - X)
        U ← μU + Δ                  X ← X + η_s (Δ + μU)

    At η_s = 1 and μ = 0 the last line is the paper's X ← ((n-S)/n) X + (1/n) Σ X_i; with μ > 0 it is
    Nesterov momentum on the pseudo-gradient -Δ (MuLoCo, and torch.optim.SGD's nesterov=True).

    Args:
        server: X, C and U before.
        updates: the round's good replies, in the order of client ids: float sums depend on it.
        n: the number of clients in the federation, never the number of replies.
        outer_lr: η_s.
        outer_momentum: μ in [0, 1).
    """
    X = server.X
    delta, dC = torch.zeros_like(X), torch.zeros_like(server.C)
    for part in parts(X):
        for u in updates:
            delta[part] += u.X[part] - X[part]
            dC[part] += u.dC[part]
    return outer_step(server, delta.div_(n), torch.add(server.C, dC.div_(n)), outer_lr, outer_momentum)


@torch.no_grad()
def outer_step(server: Server, delta: Tensor, C: Tensor, outer_lr: float = 1.0, outer_momentum: float = 0.0) -> Server:
    """The last line above, for a Δ = ``delta`` and a new C from any aggregation; pure."""
    X, mu = server.X, outer_momentum
    if not mu:
        return Server(torch.add(X, delta, alpha=outer_lr), C, server.U)
    U = mu * server.U + delta
    return Server(torch.add(X, delta + mu * U, alpha=outer_lr), C, U)


def parts(x: Tensor) -> Iterator[slice]:
    """Slices to sum one after the other: on a CPU each sum is then read from memory once, not once an update."""
    size = max(1, len(x)) if x.is_cuda else CACHED
    return (slice(start, start + size) for start in range(0, len(x), size))
