import stat
from pathlib import Path

import pytest
import torch

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation.states import ClientStates, FileStates, MemoryStates

CPU = torch.device("cpu")


def state(shared: bool) -> ClientState:
    M = {"b.weight": torch.randn(2, 3), "a": torch.randn(()), "c": torch.randn(4).double()}
    return ClientState(M, M if shared else {w: x + 1 for w, x in M.items()}, {"a": torch.ones(())}, t=3, steps=17)


@pytest.mark.parametrize("kind", [MemoryStates, FileStates])
@pytest.mark.parametrize("shared", [True, False])
def test_what_is_saved_is_loaded(kind: type, shared: bool, tmp_path: Path) -> None:
    states: ClientStates = kind(tmp_path / "states", CPU) if kind is FileStates else kind()
    assert states.load(5) is None
    kept = state(shared)
    states.save(5, state(not shared))
    states.save(5, kept)
    loaded = states.load(5)
    assert loaded is not None
    assert (loaded.t, loaded.steps) == (3, 17)
    assert (loaded.C is loaded.M) == shared
    for A, B in ((loaded.M, kept.M), (loaded.C, kept.C), (loaded.v, kept.v)):
        assert A.keys() == B.keys()
        assert all(torch.equal(A[w], x) and A[w].dtype == x.dtype for w, x in B.items())
    assert states.load(6) is None


def test_files_are_the_owners_and_hold_a_shared_C_once(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    states = FileStates(folder, CPU)
    states.save(0, state(shared=True))
    states.save(1, state(shared=False))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(file.name for file in folder.iterdir()) == ["0.safetensors", "1.safetensors"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())
    assert (folder / "0.safetensors").stat().st_size < (folder / "1.safetensors").stat().st_size
