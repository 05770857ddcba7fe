"""Clients' states that stay where they train, and are written when a checkpoint is due: a GPU waits for no file."""

from collections import OrderedDict
from collections.abc import Collection
from contextlib import AbstractContextManager

from torch import Tensor

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.protocol import CallId
from fedmuon_app.federation.states import ClientStates, restored, size_of, stored


class ResidentStates(Callback):
    """The states of one process, in its device's memory, in front of others that outlive it.

    A run that is killed goes on from its last checkpoint, and the states of that one are written before it is.
    """

    def __init__(self, behind: ClientStates, most: int) -> None:
        """Nothing is here yet.

        Args:
            behind: where states go when a checkpoint is due, or when there is no room here.
            most: bytes of all that are here together; the clients called longest ago make room.
        """
        self._behind, self._most, self._bytes = behind, most, 0
        self._here: OrderedDict[int, dict[CallId, ClientState]] = OrderedDict()
        self._keep: dict[int, Collection[CallId]] = {}
        self._written: dict[int, CallId] = {}  # the latest state of a client that went behind

    def load(self, client: int, call_id: CallId) -> ClientState:
        """See :class:`ClientStates`."""
        here = self._here.get(client, {})
        return here[call_id] if call_id in here else self._behind.load(client, call_id)

    def newest(self, client: int) -> CallId:
        """See :class:`ClientStates`."""
        return max((self._behind.newest(client), *self._here.get(client, {})))

    def save(self, client: int, call_id: CallId, state: ClientState, keep: Collection[CallId]) -> None:
        """See :class:`ClientStates`."""
        before = self._here.pop(client, {})
        after = {kept: there for kept, there in before.items() if kept in keep} | {call_id: _own(state)}
        self._here[client], self._keep[client] = after, keep
        self._bytes += sum(map(size_of, after.values())) - sum(map(size_of, before.values()))
        while self._bytes > self._most and len(self._here) > 1:
            self._send_behind(next(iter(self._here)))

    def lock(self, client: int) -> AbstractContextManager[None]:
        """See :class:`ClientStates`."""
        return self._behind.lock(client)

    def before_checkpoint(self, standing: RunState) -> None:
        """Write what a run that goes on from it would ask for."""
        for client, here in self._here.items():
            call_id, saved = standing.counted.get(client), standing.saved.get(client)
            if call_id in here and self._written.get(client) != call_id:
                self._behind.save(client, call_id, here[call_id], [saved] if saved else [])
                self._written[client] = call_id

    def _send_behind(self, client: int) -> None:
        here = self._here.pop(client)
        for call_id, state in here.items():
            if self._written.get(client) != call_id:
                self._behind.save(client, call_id, state, {*here, *self._keep[client]})
                self._written[client] = call_id
        self._bytes -= sum(map(size_of, here.values()))


def _own(state: ClientState) -> ClientState:
    """The same, holding on to no larger tensor that it is a part of (a stack of clients)."""
    return restored({name: _alone(x) for name, x in stored(state).items()}, state.t, state.steps)


def _alone(x: Tensor) -> Tensor:
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x
