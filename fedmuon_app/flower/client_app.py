"""The ClientApp: between Flower's messages and the NumPyClient."""

from typing import cast

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuon_app.flower.client import MuonClient
from fedmuon_app.flower.records import from_record, sizes_record, to_record
from fedmuon_app.flower.runs import job_of, states_of

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Which clients this node plays: those whose id is its partition id modulo the number of nodes."""
    node, nodes = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    sizes = job_of(context).sizes()
    return Message(sizes_record({i: m for i, m in sizes.items() if i % nodes == node}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round of the client that the message names."""
    client = MuonClient(job_of(context).clients, states_of(context))
    asked = message.content.config_records["call"]
    call = {key: int(cast(int, asked[key])) for key in ("client", "round")}
    X, C = (from_record(message.content.array_records[name]) for name in ("X", "C"))
    (X_i, dC), m, metrics = client.fit([X.numpy(), C.numpy()], {**call})
    content = RecordDict(
        {
            "X": to_record(torch.from_numpy(X_i)),
            "dC": to_record(torch.from_numpy(dC)),
            "metrics": MetricRecord({"num-examples": m, **call, "train-loss": float(metrics["train-loss"])}),
        }
    )
    return Message(content, reply_to=message)
