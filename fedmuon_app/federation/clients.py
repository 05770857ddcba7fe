"""The clients' side of a federation: what client i does when the server calls it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.algorithms.client import ClientState, Update, initial_gradient, initial_state, local_round
from fedmuon_app.algorithms.methods import Hyper, Method
from fedmuon_app.data.examples import Batch, Examples, Indices
from fedmuon_app.federation.judging import Judged, NothingHeldError
from fedmuon_app.federation.protocol import NEVER, Acknowledged, CallId
from fedmuon_app.federation.states import ClientStates, StateError
from fedmuon_app.objective import Objective


@dataclass(frozen=True)
class Clients:
    """All clients that one process may have to play.

    Attributes:
        method: what they run.
        hp: its numbers.
        objective: f_i, up to the data.
        examples: the training examples of all of them.
        parts: for each client id, which of these are its own.
        K: local steps a round.
        batch_size: B.
        held: for each client id, examples of its own that X is judged on; none of them is in ``parts``.
    """

    method: Method
    hp: Hyper
    objective: Objective
    examples: Examples
    parts: Sequence[Indices]
    K: int
    batch_size: int
    held: Sequence[Indices] = ()

    def judge(self, client: int, X: Tensor) -> Judged:
        """What ``client`` says of X.

        Raises:
            NothingHeldError: it has no example for that.
        """
        held = self.held[client]
        if not len(held):
            raise NothingHeldError
        said = self.objective.evaluate(X, self.examples.subset(held))
        return Judged(said[self.objective.task.metrics[0]], said["loss"], len(held))

    def answer(
        self, call_id: CallId, client: int, counted: Acknowledged, X: Tensor, C: Tensor, states: ClientStates
    ) -> Update:
        """What ``client`` sends when it is called; what it keeps goes to ``states``. Round 0 asks for C_i^(0).

        Raises:
            NonFiniteError: training diverged; the client's state is as it was.
            StateError: as :meth:`state`.
        """
        gradient, layout = self.objective.gradient, self.objective.layout
        with states.lock(client):
            state = self.state(call_id, client, counted, states)
            batches = self.minibatches(client, state.steps, K=self.K if call_id.round else 1)
            if call_id.round == 0:
                update, state = initial_gradient(self.method, self.hp, layout, gradient, X, state, batches[0])
            else:
                update, state = local_round(
                    self.method, self.hp.at(call_id.round), layout, gradient, X, C, state, batches
                )
            states.save(client, call_id, state, counted)
        return update

    def initial_state(self) -> ClientState:
        """That of a client that has never been called."""
        return initial_state(self.method, self.objective.layout, self.objective.X0())

    def state(self, call_id: CallId, client: int, counted: Acknowledged, states: ClientStates) -> ClientState:
        """The state that ``client`` begins a call with: the one after the last call that the server has counted.

        Raises:
            StateError: that is not there, or the client has been called later already.
        """
        if (newest := states.newest(client)) > call_id:
            raise StateError(f"the call of {call_id} is too late: client {client} has been called in {newest}")
        return self.initial_state() if counted.last == NEVER else states.load(client, counted.last)

    def minibatches(self, client: int, first: int, K: int) -> list[Batch]:
        """The K minibatches from local step ``first`` of the client's life on."""
        return self.objective.minibatches(client, self.examples, self.parts[client], first, K, self.batch_size)
