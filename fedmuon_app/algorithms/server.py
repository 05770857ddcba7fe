"""The server's step: X and C from the clients' updates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import Method
from fedmuon_app.algorithms.params import Params, minus, plus, zeros


@dataclass(frozen=True)
class Server:
    """What the server holds: X, C ({} without a control), and U, the outer momentum ({} without one)."""

    X: Params
    C: Params
    U: Params


def initial_server(method: Method, X: Params, outer_momentum: float = 0.0) -> Server:
    """X^(0) with C^(0) = 0 and no outer momentum yet."""
    return Server(X, {} if method.control == "none" else zeros(X), zeros(X) if outer_momentum else {})


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
        updates: those of the round that are good, in the order of client ids: float sums depend on it.
        n: the number of clients in the federation, never the number of replies.
        outer_lr: η_s.
        outer_momentum: μ in [0, 1).
    """
    delta = _mean(server.X, (minus(u.X, server.X) for u in updates), n)
    C = plus(server.C, _mean(server.C, (u.dC for u in updates), n))
    if not outer_momentum:
        return Server(plus(server.X, delta, outer_lr), C, server.U)
    U = plus(delta, server.U, outer_momentum)
    return Server(plus(server.X, plus(delta, U, outer_momentum), outer_lr), C, U)


def _mean(like: Params, terms: Iterable[Params], n: int) -> Params:
    total = zeros(like)
    for term in terms:
        total = plus(total, term)
    return {w: x / n for w, x in total.items()}
