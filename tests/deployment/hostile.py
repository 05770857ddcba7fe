"""The ClientApp of a federation in which some sites mean no good: test_hostile.py submits it in place of ours."""

import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedmuon_app.flower import client_app
from fedmuon_app.flower.records import from_record, read_call, to_record

ATTACKERS = 4


class Hostile(ClientApp):
    """Ours, after which the clients below ATTACKERS send their updates turned round and three times as large."""

    def __call__(self, message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        if message.metadata.message_type == "train" and not reply.has_error():
            client, _, _ = read_call(message.content.config_records["call"])
            if client < ATTACKERS:
                X = from_record(message.content.array_records["X"])
                X_i, dC = (from_record(reply.content.array_records[name]) for name in ("X", "dC"))
                reply.content["X"], reply.content["dC"] = to_record(torch.sub(X, X_i - X, alpha=3)), to_record(-3 * dC)
        return reply


app = Hostile()
"""For Flower."""
