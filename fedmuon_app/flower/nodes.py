"""Which node plays which client, now: nodes come, go, are slow, and may claim what is not theirs."""

import logging
import time
from collections.abc import Callable

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedmuon_app.flower.exchange import Exchange, own_words
from fedmuon_app.flower.keys import Owners, fingerprint
from fedmuon_app.flower.records import plain, read_clients

log = logging.getLogger("fedmuon")

AGAIN = 30.0  # seconds after which a node that could not take part is asked again


class Nodes:
    """The nodes that are connected, and their clients."""

    def __init__(
        self,
        grid: Grid,
        exchange: Exchange,
        n: int,
        question: Callable[[], RecordDict],
        owners: Owners,
        patience: float,
        has_keys: bool = False,
    ) -> None:
        """Nobody yet.

        Args:
            grid: Flower's way to the nodes.
            exchange: on it.
            n: clients have ids below n.
            question: what a new node is asked with.
            owners: who may play whom.
            patience: seconds that a node has for saying which clients it plays.
            has_keys: whether nodes are known by registered keys.
        """
        self._grid, self._exchange, self._n, self._question = grid, exchange, n, question
        self._owners, self._patience, self._has_keys = owners, patience, has_keys
        self._sizes: dict[int, dict[int, int]] = {}  # by node id: its clients' numbers of examples
        self._node_of: dict[int, int] = {}  # by client
        self._examples: dict[int, int] = {}  # by client
        self._asked: dict[str, tuple[int, float]] = {}  # by message id: the node, and when
        self._refused: dict[int, float] = {}  # by node id: when
        self.refusals: set[str] = set()  # what is wrong with nodes that take no part

    def look(self) -> None:
        """Forget nodes that have left, ask new nodes which clients they play, and hear who answers."""
        keys = self._connected()
        for node in self._sizes.keys() - keys.keys():
            log.warning("node %d has left, with clients %s", node, sorted(self._sizes[node]))
            self.forget(node)
        now = time.monotonic()
        self._refused = {node: then for node, then in self._refused.items() if node in keys and now < then + AGAIN}
        busy = {node for node, _ in self._asked.values()}
        new = sorted(keys.keys() - self._sizes.keys() - self._refused.keys() - busy)
        for node in [node for node in new if self._owners.stranger(keys[node])]:
            self._refuse(node, keys[node], "its key is not in federation.nodes")
            new.remove(node)
        questions = {node: Message(self._question(), dst_node_id=node, message_type=MessageType.QUERY) for node in new}
        self._asked |= {sent: (node, now) for node, sent in self._exchange.send(questions).items()}
        for reply in self._exchange.fetch(self._asked):
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            if node in keys:
                self._hear(node, keys[node], reply)
        for sent, (node, since) in list(self._asked.items()):
            late = time.monotonic() > since + self._patience
            if late or node not in keys:
                del self._asked[sent]
            if late and node in keys:
                self._refuse(node, keys[node], f"no answer in {self._patience:g} s")

    def forget(self, node: int) -> None:
        """Ask ``node`` anew at the next look."""
        for client in self._sizes.pop(node, {}):
            del self._node_of[client], self._examples[client]

    def by_client(self) -> dict[int, int]:
        """The node of each client that is connected."""
        return self._node_of

    def sizes(self) -> dict[int, int]:
        """Number of examples of each client that is connected."""
        return self._examples

    def _connected(self) -> dict[int, str]:
        """The nodes, with the fingerprints of their keys where they have any."""
        if not self._has_keys:
            return dict.fromkeys(self._grid.get_node_ids(), "")
        return {node.node_id: fingerprint(node.public_key) for node in self._grid.get_nodes()}

    def _hear(self, node: int, key: str, reply: Message) -> None:
        try:
            if reply.has_error():
                raise ValueError(own_words(reply.error, self._exchange.on_ray))
            said, notes = read_clients(reply, self._n)
        except ValueError as error:
            self._refuse(node, key, str(error))
            return
        mine = {i: m for i, m in said.items() if i not in self._node_of and self._owners.grant(i, key)}
        if others := sorted(said.keys() - mine.keys()):
            whose = "which belong to other keys, or which other nodes play"
            self._warn(f"{_name(node, key)} claims clients {plain(others)}, {whose}: they stay theirs")
        for note in notes:
            log.warning("%s, clients %s: %s", _name(node, key), sorted(mine), note)
        self._sizes[node] = mine
        self._node_of |= dict.fromkeys(mine, node)
        self._examples |= mine
        log.info("%s plays clients %s", _name(node, key), plain(sorted(mine)))

    def _refuse(self, node: int, key: str, why: str) -> None:
        self._refused[node] = time.monotonic()
        self._warn(f"{_name(node, key)} cannot take part: {plain(why)}")

    def _warn(self, sentence: str) -> None:
        if sentence not in self.refusals:
            log.warning(sentence)
        self.refusals.add(sentence)


def _name(node: int, key: str) -> str:
    return f"node {node} ({key})" if key else f"node {node}"
