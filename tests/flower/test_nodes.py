import logging
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedmuon_app.errors import RunError
from fedmuon_app.flower.exchange import DeadActorError, Exchange
from fedmuon_app.flower.keys import Owners
from fedmuon_app.flower.nodes import Nodes
from tests.flower.fake_grid import FakeGrid
from tests.flower.test_strategy import config, grid_of, train

QUESTION = RecordDict({"about": ConfigRecord({"config": "", "experiment": ""})})


class Claims(FakeGrid):
    """Nodes 1, 2, … that answer a query with the records given."""

    def __init__(self, *said: RecordDict | Error) -> None:
        super().__init__(1, {})
        self.said = dict(enumerate(said, start=1))
        self.contexts = dict.fromkeys(self.said, next(iter(self.contexts.values())))

    def push_messages(self, messages) -> list[str]:  # noqa: ANN001
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            ids.append(f"id of node {node}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            self._replies[ids[-1]] = Message(self.said[node], reply_to=message)
        return ids


def claim(ids: list[int], sizes: list[int]) -> RecordDict:
    return RecordDict({"clients": ConfigRecord({"ids": ids, "sizes": sizes, "notes": []})})


def nodes_of(grid: FakeGrid, on_ray: bool = False) -> Nodes:
    return Nodes(grid, Exchange(grid, on_ray), 4, lambda: QUESTION, Owners({}, None), 60.0)


def test_nodes_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    grid = Claims(claim([0, 2], [5, 0]), claim([1, 3], [7, 8]))
    nodes = nodes_of(grid)
    nodes.look()
    assert nodes.by_client() == {0: 1, 2: 1, 1: 2, 3: 2}
    assert nodes.sizes() == {0: 5, 2: 0, 1: 7, 3: 8}
    away = grid.contexts.pop(1)
    nodes.look()
    assert nodes.by_client() == {1: 2, 3: 2}
    assert "node 1 has left, with clients [0, 2]" in caplog.text
    grid.contexts[1], grid.said[1] = away, claim([0], [9])
    nodes.look()
    assert nodes.sizes() == {0: 9, 1: 7, 3: 8}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (claim([0, 7], [1, 1]), "its clients' ids must lie between 0 and 3, and it says [0, 7]"),
        (claim([-1], [1]), "and it says [-1]"),
        (claim([2], [-5]), "and it says [2]"),
        (claim([1, 2], [3]), "cannot be read (ValueError"),
        (RecordDict(), "cannot be read (KeyError"),
        (
            RecordDict({"clients": ConfigRecord({"ids": "all", "sizes": [1, 1, 1], "notes": []})}),
            "cannot be read (ValueError",
        ),
        (Error(code=2, reason="no such folder"), "node 1 cannot take part: no such folder"),
    ],
)
def test_a_node_that_claims_nonsense_plays_nobody(
    said: RecordDict | Error, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = nodes_of(Claims(said, claim([3], [2])))
    nodes.look()
    assert nodes.by_client() == {3: 2}
    assert why in caplog.text


def test_a_node_that_could_not_is_not_asked_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Claims(Error(code=2, reason="no such folder"))
    nodes = nodes_of(grid)
    asked = []
    push = grid.push_messages
    monkeypatch.setattr(grid, "push_messages", lambda messages: asked.append(1) or push(messages))
    for _ in range(3):
        nodes.look()
    assert len(asked) == 1
    monkeypatch.setattr("fedmuon_app.flower.nodes.AGAIN", 0.0)
    grid.said[1] = claim([0], [4])
    nodes.look()
    assert nodes.by_client() == {0: 1}


def test_a_client_that_another_node_plays_stays_its_own(caplog: pytest.LogCaptureFixture) -> None:
    nodes = nodes_of(Claims(claim([0, 1], [5, 5]), claim([1, 2], [9, 9])))
    nodes.look()
    assert nodes.by_client() == {0: 1, 1: 1, 2: 2}
    assert "node 2 claims clients [1], which belong to other keys, or which other nodes play" in caplog.text


def test_the_clients_of_a_round_are_drawn_from_those_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    c = config("rounds=6", "federation.min_replies=1")
    grid, asked = grid_of(c), []
    gone = next(iter(grid.contexts))  # plays client 0

    def tamper(call: Message, reply: Message) -> Message:
        asked.append(call.content.config_records["call"])
        if asked[-1]["round"] == 3:
            grid.contexts.pop(gone, None)
        return reply

    grid.tamper = tamper
    train(c, grid, tmp_path / "run")
    assert "has left, with clients [0]" in caplog.text
    assert {call["client"] for call in asked if int(call["round"]) > 3} == {1, 2, 3}  # type: ignore[arg-type]
    assert len(asked) == 12


def test_too_few_connected_clients_stop_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    c = config("rounds=6", "federation.clients_per_round=4")
    grid = grid_of(c)
    first = next(iter(grid.contexts))

    def tamper(call: Message, reply: Message) -> Message:
        if call.content.config_records["call"]["round"] == 2:
            grid.contexts.pop(first, None)
        return reply

    grid.tamper = tamper
    with pytest.raises(RunError, match="3 clients are connected, and a round needs 4"):
        train(c, grid, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_dead_actor_is_no_clients_fault() -> None:
    error = Error(code=0, reason="ray.exceptions.ActorDiedError: The actor died\n  class_name: X")
    nodes = nodes_of(Claims(error), on_ray=True)
    with pytest.raises(DeadActorError, match="an actor of Ray has died"):
        nodes.look()
