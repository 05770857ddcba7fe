"""The ClientApp: between Flower's messages and the NumPyClient."""

from typing import cast

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedmuon_app.flower.client import MuonClient
from fedmuon_app.flower.records import FLAT, sizes_record
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
    X, C = (message.content.array_records[name][FLAT].numpy() for name in ("X", "C"))
    (X_i, dC), m, metrics = client.fit([X, C], {**call})
    content = RecordDict(
        {
            "X": ArrayRecord({FLAT: Array(X_i)}),
            "dC": ArrayRecord({FLAT: Array(dC)}),
            "metrics": MetricRecord({"num-examples": m, **call, "train-loss": float(metrics["train-loss"])}),
        }
    )
    return Message(content, reply_to=message)
