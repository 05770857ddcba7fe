"""Flower's own thread, which hands messages to simulated nodes, beside a grid that was made prompt; and its pool."""

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.server.superlink.fleet.vce.vce_api import add_messages_to_queue
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from fedmuon_app.flower.vce import VCE, make_prompt

NODES = {11: 0, 22: 1, 33: 2}
MANY = 100  # threads; Python's pool has 32 at most
SOON = 20.0  # seconds: far more than is needed


class Post:
    """A grid and its state: messages are pairs of a node and a word. Counts the looks."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[str]] = defaultdict(list)
        self.looks = 0
        self.state = SimpleNamespace(get_message_ins=self.get_message_ins)

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        for node, word in messages:
            self.waiting[node].append(word)
        return []

    def get_message_ins(self, node_id: int, limit: int | None, *, run_id: int | None = None) -> list[str]:
        self.looks += node_id == max(NODES)
        taken = self.waiting[node_id][:limit]
        del self.waiting[node_id][: len(taken)]
        return taken


@pytest.fixture
def post() -> Post:
    post = Post()
    make_prompt(cast(InMemoryGrid, post))
    return post


@pytest.fixture
def handed(post: Post, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[str]]:
    """What Flower's thread hands on, while a look is held back for as long as the test takes."""
    monkeypatch.setattr("fedmuon_app.flower.vce.LONGEST", SOON)
    queue: Queue[str] = Queue()
    stop = threading.Event()
    thread = threading.Thread(target=add_messages_to_queue, args=(post.state, queue, NODES, stop))
    thread.start()
    yield queue
    stop.set()
    post.push_messages([])
    thread.join(SOON)
    assert not thread.is_alive()


def test_everything_that_is_pushed_is_handed_on_in_one_look(post: Post, handed: Queue[str]) -> None:
    for words in ["a", "b"], ["c"], ["d", "e", "f"]:
        before = post.looks
        post.push_messages([(node, f"{node}{word}") for node in NODES for word in words])
        got = {handed.get(timeout=SOON) for _ in range(len(NODES) * len(words))}
        assert got == {f"{node}{word}" for node in NODES for word in words}
        assert post.looks <= before + 2  # the first may have been under way


def test_nobody_looks_while_there_is_nothing(post: Post, handed: Queue[str]) -> None:
    post.push_messages([(22, "first")])
    assert handed.get(timeout=SOON) == "first"
    threading.Event().wait(0.5)  # five of Flower's own looks
    assert post.looks <= 2


def test_a_look_is_not_held_back_for_ever(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's thread sees between looks whether the run has ended."""
    monkeypatch.setattr("fedmuon_app.flower.vce.LONGEST", 0.05)
    stop, begun = threading.Event(), post.looks
    thread = threading.Thread(target=add_messages_to_queue, args=(post.state, Queue(), NODES, stop))
    thread.start()
    threading.Event().wait(0.5)
    stop.set()
    thread.join(SOON)
    assert not thread.is_alive()
    assert post.looks > begun + 1


def test_as_many_calls_are_under_way_as_there_are_actors() -> None:
    """In a process that is Flower's engine, which loads the ClientApp before it makes its pool of threads."""
    code = f"""
import threading
from {VCE} import run_api
import fedmuon_app.flower.client_app
together = threading.Barrier({MANY}, timeout={SOON})
with run_api.__globals__["ThreadPoolExecutor"]() as pool:
    assert len(list(pool.map(lambda _: together.wait(), range({MANY})))) == {MANY}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_process_does_not_load_the_engine() -> None:
    code = f"import sys, fedmuon_app.flower.client_app; assert {VCE!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
