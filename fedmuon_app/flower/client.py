"""The NumPyClient: K local steps of one client, from arrays to arrays."""

from typing import cast

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.states import ClientStates


class MuonClient(NumPyClient):
    """Plays the client that ``config`` names; what it keeps between rounds is in ``states``."""

    def __init__(self, clients: Clients, states: ClientStates) -> None:
        self._clients, self._states = clients, states
        self._like = clients.problem.X0()

    def names(self) -> list[str]:
        """The model's parameters, in the order of the arrays."""
        return list(self._like)

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """One round.

        Args:
            parameters: X, one array a parameter of the model in its order, then C likewise (nothing for a
                method without a control).
            config: ``client``, the client to play, and ``round``; round 0 asks for C_i^(0).

        Returns:
            X_i, then ΔC_i likewise; the client's number of examples; its mean training loss.

        Raises:
            NonFiniteError: training diverged; the client's state is as it was.
            ValueError: X does not fit the model.
        """
        client, round_ = int(cast(int, config["client"])), int(cast(int, config["round"]))
        names = self.names()
        X, C = (self._named(arrays) for arrays in (parameters[: len(names)], parameters[len(names) :]))
        if any(X.get(w) is None or X[w].shape != x.shape for w, x in self._like.items()):
            raise ValueError("the server's X does not fit this client's model: do both run the same configuration?")
        if round_ == 0:
            update, state = self._clients.start(client, X)
        else:
            update, state = self._clients.train(client, X, C, self._states.load(client))
        self._states.save(client, state)
        sent = [A[w].cpu().numpy() for A in (update.X, update.dC) if A for w in names]
        return sent, len(self._clients.parts[client]), {"train-loss": update.loss}

    def _named(self, arrays: NDArrays) -> dict[str, torch.Tensor]:
        device = self._clients.problem.device
        return {w: torch.from_numpy(a).to(device) for w, a in zip(self._like, arrays, strict=False)}
