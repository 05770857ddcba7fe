"""What goes over Flower's wire, and its names.

A call to a client is {X, C, call}; its reply {X, dC, metrics: {num-examples, train-loss}, answers}. X, C and dC
are ArrayRecords of one array each, float[d], laid out as :class:`fedmuon_app.algorithms.layout.Layout` says.
``call`` names the client, which call it is, the two that are counted (:mod:`fedmuon_app.federation.protocol`), the
experiment and the hash of its configuration; ``answers`` repeats whom and when it was for. A new node is asked, by a
query {about: {experiment, config}}, which clients it plays: {clients: {ids, sizes, notes}}. A call to judge X has no C
and the same ``call``; its reply is {metrics: {num-examples, value, loss}, answers}.
"""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import SType
from numpy.lib import format as npy
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.federation.judging import Judged
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.flower.arrays import Array

FLAT = "flat"  # the array's name in its record
CALL = ("client", "attempt", "round", "last-attempt", "last-round", "saved-attempt", "saved-round")
ANSWERS = ("experiment", "client", "attempt", "round")

MOST_HEAD = 2**16 + 10  # bytes of the header of an array in numpy's format 1.0
MOST_NOTES = 10
MOST = 200  # characters that are taken of what a node says

About = Mapping[str, str]
"""``experiment``, and ``hash`` of the configuration that the node has been asked with."""


def plain(said: object) -> str:
    """What a node has said as a short line of printable characters: fit to be kept, logged and shown."""
    text = str(said)[: 4 * MOST]
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= MOST else f"{line[:MOST]} …"


def to_record(x: Tensor, kind: type[Array] = Array) -> ArrayRecord:
    """A vector as a record, with one copy where flwr.app.Array makes two; float32 or float64 (not bfloat16)."""
    array, head = x.detach().cpu().numpy(), io.BytesIO()
    npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    data = b"".join((head.getvalue(), array.data))
    record = ArrayRecord()  # given its arrays, it would make new ones of Flower's own kind
    record[FLAT] = kind(str(array.dtype), array.shape, SType.NUMPY, data)
    return record


def from_record(record: ArrayRecord) -> Tensor:
    """The inverse, without the two copies of :meth:`flwr.app.Array.numpy`: not to be written to.

    Raises:
        ValueError: it is not one vector of floats in numpy's format.
    """
    if list(record) != [FLAT]:
        raise ValueError(f"arrays {sorted(record)}, not one that is named {FLAT}")
    data = record[FLAT].data
    stream = io.BytesIO(memoryview(data)[:MOST_HEAD])
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array in an unknown version of numpy's format")
    shape, _, dtype = npy.read_array_header_1_0(stream)
    if dtype not in (np.float32, np.float64) or len(shape) != 1:
        raise ValueError(f"an array of {dtype} and shape {list(shape)}, not a vector of floats")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given (NumPy array|buffer) is not writable")
        return torch.from_numpy(np.frombuffer(data, dtype, count=shape[0], offset=stream.tell()))


def call(
    X: ArrayRecord, C: ArrayRecord, client: int, call_id: CallId, counted: Acknowledged, about: About
) -> RecordDict:
    """A call to train."""
    numbers = (client, *call_id, *counted.last, *counted.saved)
    return RecordDict({"X": X, "C": C, "call": ConfigRecord({**dict(zip(CALL, numbers, strict=True)), **about})})


def read_call(call: Mapping[str, object]) -> tuple[int, CallId, Acknowledged]:
    """The client, which call it is, and what is counted of it."""
    client, *rest = (int(cast(int, call[key])) for key in CALL)
    call_id, last, saved = (CallId(*rest[k : k + 2]) for k in (0, 2, 4))
    return client, call_id, Acknowledged(last, saved)


def answer(message: Message, X: Tensor, dC: Tensor, examples: int, loss: float) -> Message:
    """The reply to a call."""
    asked = message.content.config_records["call"]
    content = RecordDict(
        {
            "X": to_record(X),
            "dC": to_record(dC),
            "metrics": MetricRecord({"num-examples": examples, "train-loss": loss}),
            "answers": ConfigRecord({key: asked[key] for key in ANSWERS}),
        }
    )
    return Message(content, reply_to=message)


def read_answer(reply: Message, asked: Message, device: torch.device) -> Update:
    """What a client answered to a call.

    Args:
        reply: with content. It may come from anybody who has a node's key.
        asked: the call.
        device: where the tensors go.

    Raises:
        ValueError: a record is missing or unreadable, or it answers another call.
    """
    try:
        X, dC = (from_record(reply.content.array_records[name]).to(device) for name in ("X", "dC"))
        loss = float(cast(float, reply.content.metric_records["metrics"]["train-loss"]))
    except Exception as error:  # whatever somebody's bytes can bring about
        raise ValueError(f"its reply cannot be read ({type(error).__name__}: {error})") from error
    _refuse_another(reply, asked)
    return Update(X, dC, loss)


def verdict(message: Message, judged: Judged) -> Message:
    """The reply to a call that asks for a client's judgement of X."""
    asked = message.content.config_records["call"]
    metrics = MetricRecord({"num-examples": judged.examples, "value": judged.value, "loss": judged.loss})
    answers = ConfigRecord({key: asked[key] for key in ANSWERS})
    return Message(RecordDict({"metrics": metrics, "answers": answers}), reply_to=message)


def read_verdict(reply: Message, asked: Message, metric: str) -> Judged:
    """What a client says of X, by a metric of which accuracies lie in [0, 1].

    Raises:
        ValueError: a record is missing or unreadable, it answers another call, or its numbers cannot be.
    """
    try:
        said = reply.content.metric_records["metrics"]
        value, loss, examples = (float(cast(float, said[key])) for key in ("value", "loss", "num-examples"))
    except Exception as error:  # as above
        raise ValueError(f"its reply cannot be read ({type(error).__name__}: {error})") from error
    _refuse_another(reply, asked)
    possible = 0 <= value <= 1 if "accuracy" in metric else math.isfinite(value)
    if not (possible and math.isfinite(loss) and 1 <= examples < 2**31):
        raise ValueError(f"it says {metric} {value:g}, loss {loss:g}, {examples:g} examples")
    return Judged(value, loss, int(examples))


def _refuse_another(reply: Message, asked: Message) -> None:
    """Refuse a reply to another call.

    Raises:
        ValueError: it is one.
    """
    call = asked.content.config_records["call"]
    try:
        answers = dict(reply.content.config_records["answers"])
    except KeyError as error:
        raise ValueError(f"its reply cannot be read (KeyError: {error})") from error
    if answers != {key: call[key] for key in ANSWERS}:
        said = ", ".join(f"{key} {plain(repr(answers.get(key)))}" for key in ANSWERS)
        raise ValueError(f"it answers another call ({said})")
    if reply.metadata.src_node_id != asked.metadata.dst_node_id:
        raise ValueError(f"it comes from node {reply.metadata.src_node_id}")


def clients_record(sizes: Mapping[int, int], notes: Sequence[str] = ()) -> RecordDict:
    """The answer to a node's query: number of examples by client id, and what the server should know of its data."""
    return RecordDict(
        {"clients": ConfigRecord({"ids": list(sizes), "sizes": list(sizes.values()), "notes": list(notes)})}
    )


def read_clients(reply: Message, n: int) -> tuple[dict[int, int], list[str]]:
    """The inverse.

    Raises:
        ValueError: it is not the sizes of clients with ids below n.
    """
    try:
        record = reply.content.config_records["clients"]
        ids, sizes, notes = (cast(list[Any], record[key]) for key in ("ids", "sizes", "notes"))
        read = {int(i): int(m) for i, m in zip(ids, sizes, strict=True)}
        notes = [plain(note) for note in notes[:MOST_NOTES]]
    except Exception as error:  # as above
        raise ValueError(f"its clients cannot be read ({type(error).__name__}: {error})") from error
    if not all(0 <= i < n and 0 <= m < 2**31 for i, m in read.items()):
        raise ValueError(f"its clients' ids must lie between 0 and {n - 1}, and it says {sorted(read)}")
    return read, notes
