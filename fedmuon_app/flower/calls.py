"""Calls: between Flower's messages and the NumPyClient. Nothing leaves here that names a path or a datum."""

import functools
import logging
from collections.abc import Callable
from typing import cast

import torch
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common import Scalar
from flwr.common.constant import ErrorCode

from fedmuon_app.algorithms.client import NonFiniteError
from fedmuon_app.errors import InputError, SiteError
from fedmuon_app.federation.judging import Judged, NothingHeldError
from fedmuon_app.federation.states import StateError
from fedmuon_app.flower.client import MuonClient
from fedmuon_app.flower.records import CALL, answer, clients_record, from_record, verdict
from fedmuon_app.flower.runs import part_of, question_of

log = logging.getLogger("fedmuon")

app = ClientApp()

Handler = Callable[[Message, Context], Message]


def outward(handler: Handler) -> Handler:
    """Answer an exception with what the server may know of it; the whole of it goes to the site's own log."""

    @functools.wraps(handler)
    def safe(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except (SiteError, NonFiniteError, StateError, NothingHeldError) as error:
            log.error("%s", error)
            reason = str(error)
        except InputError as error:
            log.error("%s", error)
            reason = "its data or its machine does not fit the run: its own log says what"
        except Exception as error:
            log.exception("a call has failed")
            reason = f"an error of its own ({type(error).__name__}): its own log has the words"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)

    return safe


@app.query()
@outward
def query(message: Message, context: Context) -> Message:
    """Which clients this node plays."""
    part = question_of(message, context)
    sizes = part.experiment.sizes()
    return Message(clients_record({i: m for i, m in sizes.items() if part.plays(i)}, part.notes()), reply_to=message)


@app.train()
@outward
def train(message: Message, context: Context) -> Message:
    """One round of the client that the message names."""
    client, call = _called(message, context)
    X, C = (from_record(message.content.array_records[name]) for name in ("X", "C"))
    (X_i, dC), count, metrics = client.fit([X.numpy(), C.numpy()], call)
    return answer(message, torch.from_numpy(X_i), torch.from_numpy(dC), count, float(metrics["train-loss"]))


@app.evaluate()
@outward
def evaluate(message: Message, context: Context) -> Message:
    """What the client that the message names says of X."""
    client, call = _called(message, context)
    loss, count, metrics = client.evaluate([from_record(message.content.array_records["X"]).numpy()], call)
    return verdict(message, Judged(float(metrics["value"]), loss, count))


def _called(message: Message, context: Context) -> tuple[MuonClient, dict[str, Scalar]]:
    """The client that a call is for, and the call's numbers.

    Raises:
        SiteError: this node does not play it.
    """
    asked = message.content.config_records["call"]
    part = part_of(str(asked["experiment"]), str(asked["hash"]), context)
    call = {key: int(cast(int, asked[key])) for key in CALL}
    if not part.plays(call["client"]):
        raise SiteError(f"this node does not play client {call['client']}")
    return MuonClient(part.experiment.clients, part.states), {**call}
