from pathlib import Path

import pytest
import torch

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.algorithms.server import Server
from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.in_process import number_of_workers
from fedmuon_app.errors import InputError
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.protocol import NEVER, CallId
from fedmuon_app.federation.resident import ResidentStates
from fedmuon_app.federation.states import MappedStates

CPU = torch.device("cpu")
T1, T2, T3 = (CallId(1, r) for r in (1, 2, 3))
SMALL = ["rounds=7", "evaluation.every=7", "local.steps=2", "local.batch_size=16", "checkpoint.every=3"]


def state(value: float) -> ClientState:
    return ClientState(torch.full((5,), float(value)), torch.full((5,), -float(value)), t=3, steps=int(value))


def stores(folder: Path, most: int) -> tuple[ResidentStates, MappedStates]:
    behind = MappedStates(folder / "states", 9, state(0), CPU)
    return ResidentStates(behind, most), behind


def test_nothing_is_written_before_a_checkpoint_and_then_what_it_counts(tmp_path: Path) -> None:
    states, behind = stores(tmp_path, 10**6)
    states.save(4, T1, state(1), ())
    states.save(4, T2, state(2), (T1,))
    states.save(5, T2, state(3), ())  # its reply was lost
    assert (states.newest(4), behind.newest(4)) == (T2, NEVER)
    standing = RunState(Server(*torch.zeros(3, 5)), 2, counted={4: T1})
    states.before_checkpoint(standing)
    assert (behind.newest(4), behind.newest(5)) == (T1, NEVER)
    assert torch.equal(behind.load(4, T1).M, state(1).M)
    assert states.load(4, T1).M is not behind.load(4, T1).M
    assert states.load(4, T2).steps == 2


def test_the_states_called_longest_ago_make_room(tmp_path: Path) -> None:
    states, behind = stores(tmp_path, 2 * 40)  # two of 5 + 5 numbers
    for client in (4, 5, 6):
        states.save(client, T1, state(client), ())
    assert [behind.newest(client) for client in (4, 5, 6)] == [T1, NEVER, NEVER]
    for client in (4, 5, 6):
        assert states.newest(client) == T1
        assert states.load(client, T1).steps == client
    states.save(4, T2, state(7), (T1,))  # what is behind counts on
    assert torch.equal(states.load(4, T1).C, state(4).C)
    assert states.newest(4) == T2


def test_a_part_of_a_stack_does_not_hold_the_whole(tmp_path: Path) -> None:
    states, _ = stores(tmp_path, 10**6)
    stack = torch.arange(40.0).view(8, 5)
    row = stack[2]
    states.save(4, T1, ClientState(row, row), ())
    kept = states.load(4, T1)
    assert torch.equal(kept.M, stack[2])
    assert kept.C is kept.M
    assert kept.M.untyped_storage().nbytes() == kept.M.nbytes


@pytest.mark.parametrize("more", [[], ["engine.stacked=true"], ["checkpoint.every=null"]])
@pytest.mark.parametrize("share", [0.5, 0.0])  # 0: each client makes room for the next
def test_it_gives_the_bits_of_a_file(more: list[str], share: float, tmp_path: Path, monkeypatch) -> None:  # noqa: ANN001
    monkeypatch.setattr(in_process, "STATES_OF_FREE", share)
    for states in ("device", "host"):
        in_process.run(load([*SMALL, *more, f"engine.states={states}", "engine.workers=0"]), tmp_path / states)
    a, b = ((tmp_path / states / "model.safetensors").read_bytes() for states in ("device", "host"))
    assert a == b


def test_workers_share_a_file() -> None:
    assert number_of_workers(load(["engine.states=device"]), "cpu") == 0
    with pytest.raises(InputError, match=r"engine.workers = 2: must be 0 or null with engine.states = device"):
        number_of_workers(load(["engine.states=device", "engine.workers=2"]), "cpu")
