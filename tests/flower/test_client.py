from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fedmuon_app.build import Job, build
from fedmuon_app.config import load
from fedmuon_app.federation.states import FileStates
from fedmuon_app.flower.client import MuonClient


def job(algorithm: str) -> Job:
    return build(load([f"algorithm={algorithm}", "federation.num_clients=4", "federation.clients_per_round=2"]))


@pytest.mark.parametrize("algorithm", ["fedmuon", "scaffold_adam", "fedavg"])
def test_fit_returns_X_i_then_dC_and_remembers(algorithm: str, tmp_path: Path) -> None:
    j = job(algorithm)
    client = MuonClient(j.clients, FileStates(tmp_path, torch.device("cpu")))
    X, C = j.server.X, j.server.C
    parameters = [X.numpy(), C.numpy()]
    first, m, metrics = client.fit(parameters, {"client": 1, "round": 1})
    second, _, _ = client.fit(parameters, {"client": 1, "round": 2})
    states = FileStates(tmp_path / "other", torch.device("cpu"))
    update, again = (j.clients.answer(r, 1, X, C, states) for r in (1, 2))
    check(first, [update.X, update.dC])
    check(second, [again.X, again.dC])
    assert m == len(j.clients.parts[1])
    assert metrics == {"train-loss": update.loss}


def check(arrays: Sequence[np.ndarray], tensors: Sequence[torch.Tensor]) -> None:
    assert len(arrays) == len(tensors)
    assert all(torch.equal(torch.from_numpy(a), x) for a, x in zip(arrays, tensors, strict=True))


def test_an_X_of_another_model_is_refused(tmp_path: Path) -> None:
    client = MuonClient(job("fedavg").clients, FileStates(tmp_path, torch.device("cpu")))
    with pytest.raises(ValueError, match="does not fit this client's model"):
        client.fit([np.zeros(4, dtype=np.float32), np.zeros(0, dtype=np.float32)], {"client": 0, "round": 1})
