"""The clients' side of a federation: what client i does when the server calls it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.algorithms.client import ClientState, Update, initial_gradient, initial_state, local_round
from fedmuon_app.algorithms.methods import Method
from fedmuon_app.algorithms.steps import Hyper
from fedmuon_app.data.examples import Examples, Indices
from fedmuon_app.federation.states import ClientStates
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

    def answer(self, r: int, client: int, X: Tensor, C: Tensor, states: ClientStates) -> Update:
        """What ``client`` sends in round ``r``; what it keeps goes to ``states``. Round 0 asks for C_i^(0).

        Raises:
            NonFiniteError: training diverged; the client's state is as it was.
        """
        state = self.initial_state() if r == 0 else self.state(client, states)
        batches = self.minibatches(client, state.steps, K=self.K if r else 1)
        gradient, layout = self.problem.gradient, self.problem.layout
        if r == 0:
            update, state = initial_gradient(self.method, self.hp, layout, gradient, X, state, batches[0])
        else:
            update, state = local_round(self.method, self.hp, layout, gradient, X, C, state, batches)
        states.save(client, state)
        return update

    def initial_state(self) -> ClientState:
        """That of a client that has never been called."""
        return initial_state(self.method, self.problem.X0())

    def state(self, client: int, states: ClientStates) -> ClientState:
        """What ``client`` kept, or the initial state."""
        return states.load(client) or self.initial_state()

    def minibatches(self, client: int, first: int, K: int) -> list[Examples]:
        """The K minibatches from local step ``first`` of the client's life on."""
        return self.problem.minibatches(client, self.examples, self.parts[client], first, K, self.batch_size)
