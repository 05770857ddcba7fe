"""The ClientApp with faults: what tests/deployment/test_faults.py submits in place of ours."""

import random
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from fedmuon_app.flower import client_app
from fedmuon_app.flower.records import FLAT, from_record, read_call

LOST, DELAYED, SECONDS, LIAR = 0.1, 0.1, 2.0, 5


class Faulty(ClientApp):
    """Ours, after which one reply in ten is lost, one in ten comes late, and client LIAR sends NaN."""

    def __call__(self, message: Message, context: Context) -> Message:
        reply = client_app.app(message, context)
        if message.metadata.message_type != "train":
            return reply
        client, call_id, _ = read_call(message.content.config_records["call"])
        luck = random.Random(f"{client} {call_id}").random()
        if luck < LOST:
            raise ConnectionError("lost on the way")
        if luck < LOST + DELAYED:
            time.sleep(SECONDS)
        if client == LIAR:
            x = from_record(reply.content.array_records["X"]).numpy()
            reply.content["X"] = ArrayRecord({FLAT: Array(np.full_like(x, np.nan))})
        return reply


app = Faulty()
