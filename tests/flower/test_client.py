from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmuon_app.config import load
from fedmuon_app.errors import SiteError
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.federation.states import FileStates
from fedmuon_app.flower.client import MuonClient
from fedmuon_app.flower.records import CALL


def experiment(algorithm: str) -> Experiment:
    return build(load([f"algorithm={algorithm}", "federation.num_clients=4", "federation.clients_per_round=2"]))


@pytest.mark.parametrize("algorithm", ["fedmuon", "scaffold_adam", "fedavg"])
def test_fit_returns_X_i_then_dC_and_remembers(algorithm: str, tmp_path: Path) -> None:
    j = experiment(algorithm)
    client = MuonClient(j.clients, FileStates(tmp_path, j.clients.initial_state(), torch.device("cpu")))
    X, C = j.server.X, j.server.C
    parameters = [X.numpy(), C.numpy()]
    first, m, metrics = client.fit(parameters, config(1, CallId(1, 1), Acknowledged()))
    second, _, _ = client.fit(parameters, config(1, CallId(1, 2), Acknowledged(CallId(1, 1))))
    states = FileStates(tmp_path / "other", j.clients.initial_state(), torch.device("cpu"))
    update = j.clients.answer(CallId(1, 1), 1, Acknowledged(), X, C, states)
    again = j.clients.answer(CallId(1, 2), 1, Acknowledged(CallId(1, 1)), X, C, states)
    check(first, [update.X, update.dC])
    check(second, [again.X, again.dC])
    assert m == len(j.clients.parts[1])
    assert metrics == {"train-loss": update.loss}


def config(client: int, call_id: CallId, counted: Acknowledged) -> dict[str, int]:
    return dict(zip(CALL, (client, *call_id, *counted.last, *counted.saved), strict=True))


def check(arrays: Sequence[np.ndarray], tensors: Sequence[torch.Tensor]) -> None:
    assert len(arrays) == len(tensors)
    assert all(torch.equal(torch.from_numpy(a), x) for a, x in zip(arrays, tensors, strict=True))


def test_an_X_of_another_model_is_refused(tmp_path: Path) -> None:
    clients = experiment("fedavg").clients
    client = MuonClient(clients, FileStates(tmp_path, clients.initial_state(), torch.device("cpu")))
    with pytest.raises(SiteError, match="the server's X has 4 numbers"):
        client.fit(
            [np.zeros(4, dtype=np.float32), np.zeros(0, dtype=np.float32)], config(0, CallId(1, 1), Acknowledged())
        )


@pytest.mark.parametrize(("algorithm", "size"), [("fedavg", 4), ("fedmuon", 0), ("fedmuon", 4), ("scaffold", 1)])
def test_a_C_of_another_method_is_refused(algorithm: str, size: int, tmp_path: Path) -> None:
    j = experiment(algorithm)
    client = MuonClient(j.clients, FileStates(tmp_path, j.clients.initial_state(), torch.device("cpu")))
    with pytest.raises(SiteError, match=f"the server's C has {size} numbers"):
        client.fit([j.server.X.numpy(), np.zeros(size, dtype=np.float32)], config(0, CallId(1, 1), Acknowledged()))
