"""A federation of one parameter, on the algorithms alone, and functions whose minimum is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import ClientState, Update, initial_gradient, initial_state, local_round
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.methods import Hyper, Method
from fedmuon_app.algorithms.server import Server, initial_server, server_step

Gradient = Callable[[Tensor, int], Tensor]
"""(X, step) to the gradient of one client's loss at that local step of its life."""


@dataclass
class ToyFederation:
    """n clients with one parameter ``w`` each, and a server.

    Attributes:
        method: a row of METHODS.
        hp: its numbers.
        gradients: of each client.
        X0: X^(0), float[d1, d2].
        K: local steps a round.
        outer_momentum: μ of the server.
        outer_lr: η_s.
    """

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
        """X as a matrix."""
        return self.matrix(self.server.X)

    def matrix(self, x: Tensor) -> Tensor:
        """A vector of the algorithms as a matrix."""
        return x.view(self.X0.shape)

    def state(self, i: int) -> ClientState:
        """What client ``i`` has kept."""
        return self.states.get(i) or initial_state(self.method, self.layout, self.server.X)

    def start_at_gradients(self) -> "ToyFederation":
        """C_i^(0) = M_i^(0) = ∇F_i(X^(0)), as Theorems 2 and 3 want it."""
        updates = []
        for i in range(len(self.gradients)):
            args = self.method, self.hp, self.layout, self._oracle(i), self.server.X, self.state(i), 0
            update, self.states[i] = initial_gradient(*args)
            updates.append(update)
        self.server = server_step(self.server, updates, len(updates))
        return self

    def train(self, i: int) -> Update:
        """Client ``i``'s round."""
        state, X, C = self.state(i), self.server.X, self.server.C
        steps = range(state.steps, state.steps + self.K)
        update, self.states[i] = local_round(self.method, self.hp, self.layout, self._oracle(i), X, C, state, steps)
        return update

    def round(self, clients: Sequence[int]) -> None:
        """A round of ``clients``, and the server's step."""
        updates = [self.train(i) for i in clients]
        self.server = server_step(self.server, updates, len(self.gradients), self.outer_lr, self.outer_momentum)

    def _oracle(self, i: int) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
        def gradient(X: Tensor, step: int) -> tuple[Tensor, Tensor]:
            return torch.tensor(0.0), self.gradients[i](self.matrix(X), step).reshape(-1)

        return gradient


def quadratics(n: int, d1: int, d2: int, seed: int = 0, noise: float = 0.0) -> tuple[list[Gradient], Tensor]:
    """f_i(X) = ½‖A_i X - B_i‖², float64 and ill-matched.

    Args:
        n: how many.
        d1: rows of X.
        d2: columns of X.
        seed: of the draw.
        noise: standard deviation of each entry of a gradient.

    Returns:
        Their gradients, and the minimiser of their mean.
    """
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
