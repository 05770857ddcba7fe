import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from flwr.app import Error, Message

from fedmuon_app.federation.loop import NoGoodReplyError
from tests.flower.fake_grid import FakeGrid
from tests.flower.test_strategy import config, grid_of, replace_array, train


def lost(call: Message, reply: Message) -> Message | None:
    """Client 0 and 2 never answer."""
    return None if call.content.config_records["call"]["client"] in (0, 2) else reply


def test_a_round_closes_when_enough_have_answered_and_the_grace_is_over(tmp_path: Path) -> None:
    c = config("federation.clients_per_round=4", "federation.min_replies=2", "federation.grace=0.1")
    started = time.monotonic()
    strategy = train(c, grid_of(c, tamper=lost), tmp_path / "run", timeout=60)
    assert 0.3 < time.monotonic() - started < 30
    assert strategy.server.C.abs().sum() > 0


def test_errors_are_not_enough(tmp_path: Path) -> None:
    c = config("rounds=1", "federation.clients_per_round=4", "federation.min_replies=2", "federation.grace=0")
    failing = grid_of(c, tamper=lambda call, reply: lost(call, reply) and Message(Error(code=8), reply_to=call))
    started = time.monotonic()
    with pytest.raises(NoGoodReplyError, match="in any round of 1: Flower's error code 8; no reply in time"):
        train(c, failing, tmp_path / "run", timeout=0.5)
    assert time.monotonic() - started > 0.5  # two errors, two missing: it waited


def test_a_reply_that_cannot_be_used_is_not_enough(tmp_path: Path) -> None:
    """Two of four answer, both with NaN."""
    c = config("rounds=1", "federation.clients_per_round=4", "federation.min_replies=2", "federation.grace=0")
    nan = replace_array("X", lambda x: x * float("nan"))
    started = time.monotonic()
    with pytest.raises(NoGoodReplyError, match="no good reply in any round of 1: X_i is not finite; no reply in time"):
        train(c, grid_of(c, tamper=lambda call, reply: lost(call, reply) and nan(reply)), tmp_path / "run", timeout=0.5)
    assert time.monotonic() - started > 0.5


class Slow(FakeGrid):
    """Keeps client 1's first reply until the next round."""

    kept: str = ""

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        waiting = [i for i in message_ids if i in self._replies]
        train = [i for i in waiting if self._replies[i].metadata.message_type == "train"]
        if not self.kept:
            calls = {i: self._replies[i].content.config_records["answers"]["client"] for i in train}
            self.kept = next((i for i, client in calls.items() if client == 1), "")
        if self.kept and len(waiting) > 1 and any(i != self.kept for i in train):
            first = [i for i in waiting if i != self.kept]
            return super().pull_messages(waiting if self.released else first)
        return super().pull_messages(waiting) if self.released or self.kept not in waiting else []

    released = False


def test_a_late_reply_is_recognised_and_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config("rounds=2", "federation.clients_per_round=4", "federation.min_replies=3", "federation.grace=0.05")
    grid = Slow(4, {})

    def tamper(call: Message, reply: Message) -> Message:
        grid.released = call.content.config_records["call"]["round"] == 2
        return reply

    grid.tamper = tamper
    train(c, grid, tmp_path / "run", timeout=30)
    assert "round 1: client 1 is dropped: no reply in time" in caplog.text
    assert "too late: the reply of client 1 in round 1" in caplog.text


def test_a_reply_that_cannot_be_unpacked_costs_the_others_nothing(tmp_path: Path) -> None:
    c = config("rounds=1", "federation.clients_per_round=4")
    grid = grid_of(c)
    pull = grid.pull_messages

    def bomb(message_ids: Iterable[str]) -> list[Message]:
        ids = list(message_ids)
        poisoned = [i for i in ids if i in grid._replies and _client(grid._replies[i]) == 3]
        if poisoned and len(ids) == 1:
            del grid._replies[poisoned[0]]
        if poisoned:
            raise ValueError("object id does not match its content")
        return pull(ids)

    grid.pull_messages = bomb  # type: ignore[method-assign,assignment]
    strategy = train(c, grid, tmp_path / "run", timeout=0.5)
    assert strategy.server.C.abs().sum() > 0


def _client(reply: Message) -> object:
    records = reply.content.config_records
    return records["answers"]["client"] if "answers" in records else None


def test_a_superlink_that_is_gone_stops_the_run(tmp_path: Path) -> None:
    c = config()
    grid = grid_of(c)

    def gone(message_ids: Iterable[str]) -> list[Message]:
        raise ConnectionError("connection refused")

    grid.pull_messages = gone  # type: ignore[method-assign,assignment]
    with pytest.raises(ConnectionError, match="connection refused"):
        train(c, grid, tmp_path / "run")
