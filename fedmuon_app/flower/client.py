"""The NumPyClient: K local steps of one client, from arrays to arrays."""

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from fedmuon_app.errors import SiteError
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.states import ClientStates
from fedmuon_app.flower.records import read_call


class MuonClient(NumPyClient):
    """Plays the client that ``config`` names; what it keeps between rounds is in ``states``."""

    def __init__(self, clients: Clients, states: ClientStates) -> None:
        self._clients, self._states = clients, states

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """One round.

        Args:
            parameters: X and C, float[d] each (C is float[0] for a method without a control).
            config: whom to play, when, and what is counted (:data:`fedmuon_app.flower.records.CALL`).

        Returns:
            X_i and ΔC_i, in the same form; the client's number of examples; its mean training loss.

        Raises:
            NonFiniteError: training diverged; the client's state is as it was.
            StateError: its state is not there, or a later call has come before this one.
            SiteError: X or C does not fit the model and the method.
        """
        client, call_id, counted = read_call(config)
        objective = self._clients.objective
        X, C = (torch.from_numpy(x).to(objective.device) for x in parameters)
        d = len(objective.layout)
        for name, x, size in (("X", X, d), ("C", C, 0 if self._clients.method.control == "none" else d)):
            _refuse_size(name, x, size)
        update = self._clients.answer(call_id, client, counted, X, C, self._states)
        sent = [x.cpu().numpy() for x in (update.X, update.dC)]
        return sent, len(self._clients.parts[client]), {"train-loss": update.loss}

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """The client's judgement of X.

        Args:
            parameters: X, float[d].
            config: whom to play.

        Returns:
            The mean loss, the number of its held-out examples, and the metric that decides which X is best.

        Raises:
            NothingHeldError: it has none.
            SiteError: X does not fit the model.
        """
        objective = self._clients.objective
        X = torch.from_numpy(parameters[0]).to(objective.device)
        _refuse_size("X", X, len(objective.layout))
        client, _, _ = read_call(config)
        judged = self._clients.judge(client, X)
        return judged.loss, judged.examples, {"value": judged.value}


def _refuse_size(name: str, x: torch.Tensor, size: int) -> None:
    """Refuse a vector of another size.

    Raises:
        SiteError: it is one.
    """
    if x.shape != (size,):
        raise SiteError(
            f"the server's {name} has {len(x)} numbers, and this client's model needs {size}: "
            "do both run the same configuration?"
        )
