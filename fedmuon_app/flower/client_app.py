"""The ClientApp: between Flower's messages and the NumPyClient."""

from typing import cast

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmuon_app.flower.client import MuonClient
from fedmuon_app.flower.records import CALL, answer, from_record, sizes_record
from fedmuon_app.flower.runs import job_of, states_of

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Which clients this node plays."""
    sizes = job_of(str(message.content.config_records["about"]["config"]), context).sizes()
    return Message(sizes_record({i: m for i, m in sizes.items() if _plays(context, i)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round of the client that the message names.

    Raises:
        PermissionError: this node does not play it.
    """
    asked = message.content.config_records["call"]
    call = {key: int(cast(int, asked[key])) for key in CALL}
    if not _plays(context, call["client"]):
        raise PermissionError(f"this node does not play client {call['client']}")
    config = str(asked["config"])
    client = MuonClient(job_of(config, context).clients, states_of(config, str(asked["experiment"]), context))
    X, C = (from_record(message.content.array_records[name]) for name in ("X", "C"))
    (X_i, dC), examples, metrics = client.fit([X.numpy(), C.numpy()], {**call})
    return answer(message, torch.from_numpy(X_i), torch.from_numpy(dC), examples, float(metrics["train-loss"]))


def _plays(context: Context, client: int) -> bool:
    """A node plays the clients whose id is its partition id modulo the number of nodes."""
    node, nodes = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    return client % nodes == node
