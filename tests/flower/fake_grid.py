"""Flower's grid without Flower's processes: messages go straight to a ClientApp in this process."""

import functools
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity

from fedmuon_app.flower.calls import app

Tamper = Callable[[Message, Message], Message | None]
"""(call, reply) to the reply that the server sees; None loses it."""


@functools.cache
def key_of(node: int) -> bytes:
    """The same in each life of a run."""
    return public_key_to_bytes(ec.generate_private_key(ec.SECP384R1()).public_key())


class FakeGrid(Grid):
    """Nodes with large random-looking ids, in no order of the partitions."""

    def __init__(self, nodes: int, run_config: dict[str, Any], tamper: Tamper = lambda call, reply: reply) -> None:
        self.contexts = {
            2**63 + (7919 * j) % 104729: Context(
                run_id=1,
                node_id=2**63 + (7919 * j) % 104729,
                node_config={"partition-id": j, "num-partitions": nodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for j in range(nodes)
        }
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a ServerApp's process has set
        self.keys = dict[int, bytes]()  # of the nodes, in PEM
        self.tamper, self._replies = tamper, dict[str, Message]()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(str(uuid.uuid4()))
            message.metadata.__dict__["_message_id"] = ids[-1]
            if message.metadata.dst_node_id not in self.contexts:
                continue  # it has left meanwhile
            reply = app(message, self.contexts[message.metadata.dst_node_id])
            tampered = self.tamper(message, reply) if message.metadata.message_type == "train" else reply
            if tampered is not None:
                self._replies[ids[-1]] = tampered
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> list[int]:
        return sorted(self.contexts)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **kwargs: Any) -> Any: ...

    def get_nodes(self) -> list[NodeInfo]:
        keys = {node: self.keys.get(node, key_of(node)) for node in sorted(self.contexts)}
        return [NodeInfo(node_id=node, public_key=key) for node, key in keys.items()]
