"""Flower's simulation looks for messages every 0.1 s, so that rounds take whole tenths: here it waits for them."""

import threading
from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

LONGEST = 0.5  # seconds that a look is held back: between looks Flower's thread sees whether the run has ended


def make_prompt(grid: InMemoryGrid) -> None:
    """Let messages that are pushed go to their nodes at once.

    Flower's thread asks the grid's state for one message of each node, sleeps 0.1 s, and begins anew. Here the first
    question of a look waits until messages have been pushed, so that the sleep is over by then (it passes while clients
    train), and a node gets all of its messages at once.
    """
    ask, push = grid.state.get_message_ins, grid.push_messages
    new = threading.Event()
    asked: set[int] = set()  # nodes, in this look

    def pushed(messages: Iterable[Message]) -> Iterable[str]:
        ids = push(messages)
        new.set()  # once all are there
        return ids

    def messages_of(node_id: int, limit: int | None, **more: Any) -> list[Message]:
        if node_id in asked:
            asked.clear()
            new.wait(LONGEST)
            new.clear()  # before the look: what comes during it makes another one
        asked.add(node_id)
        return ask(node_id, None, **more)

    setattr(grid, "push_messages", pushed)  # noqa: B010
    setattr(grid.state, "get_message_ins", messages_of)  # noqa: B010
