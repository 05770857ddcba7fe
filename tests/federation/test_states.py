import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation.states import ClientStates, FileStates, MappedStates, unnamed_states

CPU = torch.device("cpu")
NOTHING = torch.zeros(0)


def state(shared: bool, v: torch.Tensor = NOTHING) -> ClientState:
    M = torch.randn(5)
    return ClientState(M, M if shared else M + 1, v, t=3, steps=17)


def a_store(kind: type, folder: Path, like: ClientState) -> ClientStates:
    return FileStates(folder, CPU) if kind is FileStates else MappedStates(folder / "states", 9, like, CPU)


@pytest.mark.parametrize("kind", [MappedStates, FileStates])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("v", [NOTHING, torch.randn(5)])
def test_what_is_saved_is_loaded_by_another_process_too(
    kind: type, shared: bool, v: torch.Tensor, tmp_path: Path
) -> None:
    kept = state(shared, v)
    states = a_store(kind, tmp_path, kept)
    assert states.load(5) is None
    states.save(5, state(shared, v))
    states.save(5, kept)
    for reader in (states, a_store(kind, tmp_path, kept)):
        loaded = reader.load(5)
        assert loaded is not None
        assert (loaded.t, loaded.steps) == (3, 17)
        assert (loaded.C is loaded.M) == shared
        for x, y in ((loaded.M, kept.M), (loaded.C, kept.C), (loaded.v, kept.v)):
            assert torch.equal(x, y)
        assert reader.load(4) is None
        assert reader.load(6) is None


def test_the_file_of_a_large_federation_takes_what_its_called_clients_take(tmp_path: Path) -> None:
    large = ClientState(*[torch.ones(2_000_000)] * 2, NOTHING, steps=1)
    states = MappedStates(tmp_path / "states", 10_000, large, CPU)
    for client in (7, 9_999):
        states.save(client, large)
    file = (tmp_path / "states").stat()
    assert file.st_size >= MappedStates.size(10_000, large) == 80_000_000_000
    assert file.st_blocks * 512 < 3 * 8_000_000
    assert states.load(8) is None


def test_unnamed_states_leave_nothing_behind_when_their_process_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal, tempfile, torch
from pathlib import Path
from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation import states
states.RAM = Path({str(tmp_path)!r})
kept = ClientState(*[torch.ones(3)] * 3, steps=1)
with states.unnamed_states(4, kept, torch.device("cpu")) as rows:
    rows.save(1, kept)
    assert rows.load(1).steps == 1
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    assert not list(tmp_path.iterdir())


def test_states_that_do_not_fit_into_ram_go_to_disk(tmp_path: Path) -> None:
    large = ClientState(*[torch.ones(2**28)] * 2, NOTHING, steps=1)  # 2 GiB each
    with unnamed_states(10_000, large, CPU) as states:
        assert states.load(9_999) is None


def test_files_are_the_owners_and_hold_a_shared_C_once(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    states = FileStates(folder, CPU)
    states.save(0, state(shared=True))
    states.save(1, state(shared=False))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(file.name for file in folder.iterdir()) == ["0.safetensors", "1.safetensors"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())
    assert (folder / "0.safetensors").stat().st_size < (folder / "1.safetensors").stat().st_size
