"""The clients' side of a federation: what client i does when the server calls it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmuon_app.algorithms.client import (
    ClientState,
    Update,
    initial_gradient,
    initial_state,
    local_round,
)
from fedmuon_app.algorithms.methods import Method
from fedmuon_app.algorithms.params import Params
from fedmuon_app.algorithms.steps import Hyper
from fedmuon_app.data.examples import Examples, Indices
from fedmuon_app.problem import Problem


@dataclass(frozen=True)
class Clients:
    """All clients that one process may have to play.

    Attributes:
        method: what they run.
        hp: its numbers.
        problem: f_i, up to the data.
        examples: the training examples of all of them.
        parts: for each client id, which of these are its own.
        K: local steps a round.
        batch_size: B.
    """

    method: Method
    hp: Hyper
    problem: Problem
    examples: Examples
    parts: Sequence[Indices]
    K: int
    batch_size: int

    def train(self, client: int, X: Params, C: Params, state: ClientState | None) -> tuple[Update, ClientState]:
        """One round of ``client``; its state is None when it has never been called.

        Raises:
            NonFiniteError: training diverged.
        """
        state = state or initial_state(self.method, X)
        batches = self.problem.minibatches(
            client, self.examples, self.parts[client], state.steps, self.K, self.batch_size
        )
        return local_round(self.method, self.hp, self.problem.gradient, X, C, state, batches)

    def start(self, client: int, X: Params) -> tuple[Update, ClientState]:
        """C_i^(0) of ``client``: one gradient at X^(0)."""
        (batch,) = self.problem.minibatches(client, self.examples, self.parts[client], 0, 1, self.batch_size)
        state = initial_state(self.method, X)
        return initial_gradient(self.method, self.hp, self.problem.gradient, X, state, batch)
