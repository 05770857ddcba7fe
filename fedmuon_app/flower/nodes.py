"""Which node plays which client, now: nodes come, go, and may claim what is not theirs."""

import logging
import time
from collections.abc import Callable

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedmuon_app.flower.exchange import Exchange, own_words
from fedmuon_app.flower.records import read_sizes

log = logging.getLogger("fedmuon")

ANSWER = 60.0  # seconds that new nodes have for saying which clients they play
AGAIN = 300.0  # seconds after which a node that could not is asked again


class Nodes:
    """The nodes that are connected, and their clients."""

    def __init__(self, grid: Grid, exchange: Exchange, n: int, question: Callable[[], RecordDict]) -> None:
        """Nobody yet.

        Args:
            grid: Flower's way to the nodes.
            exchange: on it.
            n: clients have ids below n.
            question: what a new node is asked with.
        """
        self._grid, self._exchange, self._n, self._question = grid, exchange, n, question
        self._sizes: dict[int, dict[int, int]] = {}  # by node id: its clients' numbers of examples
        self._refused: dict[int, float] = {}  # when
        self.refusals: set[str] = set()  # what nodes said that take no part

    def look(self) -> None:
        """Forget nodes that have left, and ask those that are new which clients they play."""
        connected = set(self._grid.get_node_ids())
        for node in self._sizes.keys() - connected:
            log.warning("node %d has left, with clients %s", node, sorted(self._sizes.pop(node)))
        now = time.monotonic()
        self._refused = {node: then for node, then in self._refused.items() if node in connected and now < then + AGAIN}
        new = sorted(connected - self._sizes.keys() - self._refused.keys())
        questions = {node: Message(self._question(), dst_node_id=node, message_type=MessageType.QUERY) for node in new}
        replies = self._exchange.ask(questions, ANSWER) if questions else {}
        for node in new:
            try:
                said = self._said(replies.get(node))
            except ValueError as error:
                self._refused[node] = now
                self._warn(f"a node cannot take part: {error}")
                continue
            taken = sorted(said.keys() & self.by_client().keys())
            if taken:
                self._warn(f"node {node} claims clients {taken}, which other nodes play: they stay theirs")
            self._sizes[node] = {i: m for i, m in said.items() if i not in taken}
            log.info("node %d plays clients %s", node, sorted(self._sizes[node]))

    def _said(self, reply: Message | None) -> dict[int, int]:
        if reply is None:
            raise ValueError(f"no answer in {ANSWER:.0f} s")
        if reply.has_error():
            raise ValueError(own_words(reply.error))
        return read_sizes(reply, self._n)

    def by_client(self) -> dict[int, int]:
        """The node of each client that is connected."""
        return {i: node for node, sizes in self._sizes.items() for i in sizes}

    def sizes(self) -> dict[int, int]:
        """Number of examples of each client that is connected."""
        return {i: m for sizes in self._sizes.values() for i, m in sizes.items()}

    def _warn(self, sentence: str) -> None:
        if sentence not in self.refusals:
            log.warning(sentence)
        self.refusals.add(sentence)
