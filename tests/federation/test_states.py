import multiprocessing
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.disk import write_whole
from fedmuon_app.federation.protocol import NEVER, CallId
from fedmuon_app.federation.states import (
    ClientStates,
    FileStates,
    MappedStates,
    StateError,
    unnamed_states,
)

CPU = torch.device("cpu")
T1, T2, T3, T4 = (CallId(1, r) for r in (1, 2, 3, 4))
KINDS = pytest.mark.parametrize("kind", [MappedStates, FileStates])


def state(shared: bool = True, slots: int = 0, steps: int = 17) -> ClientState:
    M = torch.randn(5)
    kept = {f"matrices.{name}": torch.randn(size) for name, size in (("L", 3), ("R", 7))[:slots]}
    return ClientState(M, M if shared else M + 1, kept, t=3, steps=steps)


def a_store(kind: type, folder: Path, like: ClientState) -> ClientStates:
    return FileStates(folder / "ab", like, CPU) if kind is FileStates else MappedStates(folder / "states", 9, like, CPU)


@KINDS
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("slots", [0, 1, 2])
def test_what_is_saved_is_loaded_by_another_process_too(kind: type, shared: bool, slots: int, tmp_path: Path) -> None:
    kept = state(shared, slots)
    states = a_store(kind, tmp_path, kept)
    assert states.newest(5) == NEVER
    states.save(5, T1, state(shared, slots), ())
    states.save(5, T2, kept, (T1,))
    for reader in (states, a_store(kind, tmp_path, kept)):
        assert reader.newest(5) == T2
        loaded = reader.load(5, T2)
        assert (loaded.t, loaded.steps) == (3, 17)
        assert (loaded.C is loaded.M) == shared
        assert set(loaded.kept) == set(kept.kept)
        for x, y in (
            (loaded.M, kept.M),
            (loaded.C, kept.C),
            *((loaded.kept[name], kept.kept[name]) for name in kept.kept),
        ):
            assert torch.equal(x, y)
        assert reader.newest(4) == reader.newest(6) == NEVER


@KINDS
def test_the_counted_the_saved_and_the_new_state_are_kept_and_no_more_are_needed(kind: type, tmp_path: Path) -> None:
    kept = [state(steps=r) for r in range(40)]
    states = a_store(kind, tmp_path, kept[0])
    states.save(0, T1, kept[1], ())
    for r in range(2, 40):  # round 1 is in the checkpoint; of the others every third reply is counted
        counted = CallId(1, max(1, 3 * ((r - 1) // 3)))
        states.save(0, CallId(1, r), kept[r], (counted, T1))
        for k in (1, counted.round, r):
            assert states.load(0, CallId(1, k)).steps == k
            assert torch.equal(states.load(0, CallId(1, k)).M, kept[k].M)
    if kind is FileStates:
        assert len(list(tmp_path.rglob("*.safetensors"))) == 3


@KINDS
def test_a_state_that_is_not_there_is_named(kind: type, tmp_path: Path) -> None:
    states = a_store(kind, tmp_path, state())
    states.save(3, T2, state(), ())
    with pytest.raises(StateError, match=r"client 3 has no state of round 7 \(resume 1\)"):
        states.load(3, CallId(2, 7))


@KINDS
def test_a_client_is_one_process_at_a_time(kind: type, tmp_path: Path) -> None:
    states = a_store(kind, tmp_path, state())
    log = tmp_path / "log"

    def hold(name: str) -> None:
        mine = a_store(kind, tmp_path, state())
        with mine.lock(5), log.open("a") as file:
            print(name, "in", file=file, flush=True)
            time.sleep(0.05)
            print(name, "out", file=file, flush=True)

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=hold, args=(str(j),)) for j in range(4)]
    for process in processes:
        process.start()
    with states.lock(6):  # another client's is free
        for process in processes:
            process.join()
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len(lines) == 8
    assert all(a[0] == b[0] and (a[1], b[1]) == ("in", "out") for a, b in zip(lines[::2], lines[1::2], strict=True))


def test_the_file_of_a_large_federation_takes_what_its_called_clients_take(tmp_path: Path) -> None:
    large = ClientState(*[torch.ones(2_000_000)] * 2, steps=1)
    states = MappedStates(tmp_path / "states", 10_000, large, CPU)
    for client in (7, 9_999):
        states.save(client, T1, large, ())
        states.save(client, T2, large, (T1,))
        states.save(client, T3, large, (T2,))
    file = (tmp_path / "states").stat()
    assert file.st_size >= 3 * 80_000_000_000
    assert file.st_blocks * 512 < 5 * 8_000_000  # two clients, two states each
    assert states.newest(8) == NEVER


def test_unnamed_states_leave_nothing_behind_when_their_process_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal, tempfile, torch
from pathlib import Path
from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation import states
from fedmuon_app.federation.protocol import CallId
states.RAM = Path({str(tmp_path)!r})
kept = ClientState(*[torch.ones(3)] * 2, steps=1)
rows = states.unnamed_states(4, kept, torch.device("cpu"))
rows.save(1, CallId(1, 1), kept, ())
assert rows.load(1, CallId(1, 1)).steps == 1
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    assert not list(tmp_path.iterdir())


def test_states_that_do_not_fit_into_ram_go_to_disk(tmp_path: Path) -> None:
    large = ClientState(*[torch.ones(2**28)] * 2, steps=1)  # 2 GiB each
    assert unnamed_states(2_000, large, CPU).newest(1_999) == NEVER


def test_files_are_the_owners_and_hold_a_shared_C_once(tmp_path: Path) -> None:
    FileStates(tmp_path / "ab", state(), CPU).save(0, T1, state(), ())
    FileStates(tmp_path / "ab", state(shared=False), CPU).save(1, T1, state(shared=False), ())
    one, two = (tmp_path / "ab" / str(client) / "1-1.safetensors" for client in (0, 1))
    for folder in (one.parent, one.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert one.stat().st_size < two.stat().st_size


def test_a_damaged_or_foreign_file_is_refused_and_only_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states = FileStates(tmp_path / "ab", state(), CPU)
    states.save(0, T1, state(), ())
    file = tmp_path / "ab" / "0" / "1-1.safetensors"
    whole = file.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), os.urandom(300)):
        file.write_bytes(broken)
        caplog.clear()
        with pytest.raises(StateError, match=r"^the state of client 0 (is damaged|cannot be read)$"):
            states.load(0, T1)
        assert str(file) in caplog.text
    file.write_bytes(whole)
    file.rename(tmp_path / "ab" / "0" / "1-2.safetensors")
    with pytest.raises(StateError, match="the state of client 0 is another one's"):
        states.load(0, T2)
    other = FileStates(tmp_path / "cd", state(), CPU)
    (tmp_path / "ab").rename(tmp_path / "cd")
    with pytest.raises(StateError, match="the state of client 0 is another one's"):
        other.load(0, T2)


@KINDS
def test_a_state_that_does_not_fit_on_the_disk_is_an_error_and_the_last_one_stands(kind: type, tmp_path: Path) -> None:
    large = ClientState(*[torch.randn(100_000)] * 2, steps=1)
    states = a_store(kind, tmp_path, large)
    states.save(0, T1, large, ())

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # of this process
        with pytest.raises(StateError, match=r"the state of client 0 cannot be written: .*File too large"):
            states.save(0, T2, large, (T1,))
        assert states.newest(0) == T1
        assert torch.equal(states.load(0, T1).M, large.M)

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_whole(file, b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"after")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"before"
