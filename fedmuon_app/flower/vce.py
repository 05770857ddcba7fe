"""Flower's simulation engine (its vce), in one process with the ServerApp, told from inside to lose no time."""

import functools
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.superlink.grid.inmemory_grid import InMemoryGrid

VCE = "flwr.server.superlink.fleet.vce.vce_api"
MOST_CALLS = 4096  # under way at a time
LONGEST = 0.5  # seconds that a look is held back: between looks Flower's thread sees whether the run has ended


def use_all_actors() -> None:
    """Let a call for each actor be under way; nothing where this process is not the engine's.

    Flower waits for calls in a pool of threads of Python's default size: this machine's cores + 4, and never above 32,
    however many actors a cluster has. It loads the ClientApp before it makes the pool: this is the moment.
    """
    if engine := sys.modules.get(VCE):
        setattr(engine, "ThreadPoolExecutor", functools.partial(ThreadPoolExecutor, MOST_CALLS))  # noqa: B010


def make_prompt(grid: "InMemoryGrid") -> None:
    """Let messages that are pushed go to their nodes at once.

    Flower's thread asks the grid's state for one message of each node, sleeps 0.1 s, and begins anew, so that rounds
    take whole tenths. Here the first question of a look waits until messages have been pushed: the sleep is over by
    then, since it passes while clients train. And a node gets all of its messages at once.
    """
    ask, push = grid.state.get_message_ins, grid.push_messages
    new = threading.Event()
    asked: set[int] = set()  # nodes, in this look

    def pushed(messages: Iterable["Message"]) -> Iterable[str]:
        ids = push(messages)
        new.set()  # once all are there
        return ids

    def messages_of(node_id: int, limit: int | None, **more: Any) -> list["Message"]:
        if node_id in asked:
            asked.clear()
            new.wait(LONGEST)
            new.clear()  # before the look: what comes during it makes another one
        asked.add(node_id)
        return ask(node_id, None, **more)

    setattr(grid, "push_messages", pushed)  # noqa: B010
    setattr(grid.state, "get_message_ins", messages_of)  # noqa: B010
