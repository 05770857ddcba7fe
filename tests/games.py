"""Small federations with a closed form, played on the algorithms alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import ClientState, Update, initial_state, local_round
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.methods import Method
from fedmuon_app.algorithms.server import Server, initial_server, server_step
from fedmuon_app.algorithms.steps import Hyper
from fedmuon_app.federation.sampling import cohort

Gradient = Callable[[Tensor, int], Tensor]
"""(X, step) to the gradient of one client's loss at that local step of its life."""


@dataclass
class Game:
    """n clients with one parameter ``w`` each, and a server."""

    method: Method
    hp: Hyper
    gradients: Sequence[Gradient]
    X0: Tensor
    K: int = 1
    outer_momentum: float = 0.0
    outer_lr: float = 1.0
    states: dict[int, ClientState] = field(default_factory=dict)
    server: Server = field(init=False)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout.of({"w": self.X0})
        self.server = initial_server(self.method, self.X0.reshape(-1), self.outer_momentum)

    @property
    def x(self) -> Tensor:
        return self.matrix(self.server.X)

    def matrix(self, x: Tensor) -> Tensor:
        return x.view(self.X0.shape)

    def train(self, i: int) -> Update:
        state = self.states.get(i) or initial_state(self.method, self.server.X)

        def gradient(X: Tensor, step: int) -> tuple[Tensor, Tensor]:
            return torch.tensor(0.0), self.gradients[i](self.matrix(X), step).reshape(-1)

        steps = range(state.steps, state.steps + self.K)
        X, C = self.server.X, self.server.C
        update, self.states[i] = local_round(self.method, self.hp, self.layout, gradient, X, C, state, steps)
        return update

    def round(self, clients: Sequence[int]) -> None:
        updates = [self.train(i) for i in clients]
        self.server = server_step(self.server, updates, len(self.gradients), self.outer_lr, self.outer_momentum)

    def play(self, rounds: int, S: int | None = None, seed: int = 0) -> "Game":
        n = len(self.gradients)
        for r in range(1, rounds + 1):
            self.round(cohort(seed, r, range(n), S or n))
        return self

    def mean_C(self) -> Tensor:
        zero = torch.zeros_like(self.server.X)
        kept = [self.states[i].C if i in self.states else zero for i in range(len(self.gradients))]
        return sum(kept, zero) / len(self.gradients)


def quadratics(n: int, d1: int, d2: int, seed: int = 0, noise: float = 0.0) -> tuple[list[Gradient], Tensor]:
    """f_i(X) = ½‖A_i X - B_i‖², float64 and ill-matched; with the minimiser of their mean."""
    g = torch.Generator().manual_seed(seed)
    A = torch.randn(n, d1, d1, generator=g, dtype=torch.float64) / d1**0.5 + torch.eye(d1, dtype=torch.float64)
    B = 3 * torch.randn(n, d1, d2, generator=g, dtype=torch.float64)
    best = torch.linalg.solve((A.mT @ A).mean(0), (A.mT @ B).mean(0))

    def gradient(i: int) -> Gradient:
        def at(X: Tensor, step: int) -> Tensor:
            draw = torch.Generator().manual_seed(1000 * i + step)
            xi = torch.randn(d1, d2, generator=draw, dtype=torch.float64) if noise else 0.0
            return A[i].mT @ (A[i] @ X - B[i]) + noise * xi

        return at

    return [gradient(i) for i in range(n)], best
