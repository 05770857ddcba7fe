"""C = (1/n) Σ C_i, whatever is lost on the way: replies, answers that are refused, the server itself."""

import random
from functools import partial
from pathlib import Path

import pytest
import torch
from flwr.app import Error, Message

from fedmuon_app.config import Config
from fedmuon_app.experiment import build
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.states import FileStates
from tests.deployment.invariant import bend
from tests.flower.fake_grid import Tamper
from tests.flower.test_strategy import config, grid_of, replace_array, train

CPU = torch.device("cpu")
LONG = ["rounds=25", "evaluation.every=25", "local.steps=1", "checkpoint.every=4", "federation.clients_per_round=3"]


serve = partial(train, timeout=0.1)


class Crash(BaseException):
    """The server's process is gone."""


def difference(c: Config, folder: Path, state: Path) -> float:
    """How far C, from the checkpoint, is from the mean of the C_i, from the clients' files."""
    standing, _ = checkpoint.read(folder)
    states = FileStates(state / "fedmuon" / standing.experiment, build(c).clients.initial_state(), CPU)
    return bend(standing, lambda client: states, c.federation.num_clients)


def at_random(draw: random.Random, lost: float, bad: float) -> Tamper:
    spoil = replace_array("X", lambda x: x * float("nan"))

    def tamper(call: Message, reply: Message) -> Message | None:
        luck = draw.random()
        if luck < lost:
            return None
        if luck < lost + bad / 2:
            return spoil(reply)
        if luck < lost + bad:
            return Message(Error(code=2, reason="out of memory"), reply_to=call)
        return reply

    return tamper


@pytest.mark.parametrize("algorithm", ["fedmuon", "scaffold", "scaffold_adam"])
def test_it_holds_when_replies_are_lost_and_refused(algorithm: str, tmp_path: Path) -> None:
    c = config(*LONG, f"algorithm={algorithm}")
    serve(c, grid_of(c, tamper=at_random(random.Random(1), 0.2, 0.2)), tmp_path / "run")
    assert difference(c, tmp_path / "run", tmp_path / "state") < 1e-6


def test_it_holds_and_nothing_is_counted_twice_when_the_server_crashes_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, resumed = config(*LONG), config(*LONG, "resume=auto")
    serve(c, grid_of(c), tmp_path / "whole")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state2"))
    monkeypatch.setattr(RunLog, "keeps", False)  # a crash writes no last checkpoint
    draw = random.Random(2)
    crashes = 0
    while True:
        fuse = draw.randrange(1, 30)

        def crash(call: Message, reply: Message) -> Message:
            nonlocal fuse
            fuse -= 1
            if not fuse:
                raise Crash
            return reply

        try:
            serve(resumed, grid_of(c, tamper=crash), tmp_path / "run")
            break
        except Crash:
            crashes += 1
    assert crashes >= 3
    a, b = (checkpoint.read(tmp_path / name)[0] for name in ("run", "whole"))
    assert torch.equal(a.server.X, b.server.X)
    assert torch.equal(a.server.C, b.server.C)
    assert difference(c, tmp_path / "run", tmp_path / "state2") < 1e-6


def test_a_call_that_comes_after_a_later_one_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config("rounds=3", "federation.num_clients=2")
    grid, held = grid_of(c, nodes=2), []
    push = grid.push_messages

    def hold_back(messages) -> list[str]:  # noqa: ANN001
        calls = [m for m in messages if m.metadata.message_type == "train"]
        if len(held) == 1 and calls:  # the call of client 0 in round 1 arrives with round 2's, behind them
            calls += held
            held.append(held[0])
            return push(calls)[:-1]
        if calls and not held:
            held.append(calls[0])
            return ["", *push(calls[1:])]
        return push(messages)

    grid.push_messages = hold_back  # type: ignore[method-assign,assignment]
    serve(c, grid, tmp_path / "run")
    assert "the call of round 1 is too late: client 0 has been called in round 2" in caplog.text
