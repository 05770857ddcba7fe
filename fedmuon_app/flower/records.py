"""What goes over Flower's wire, and its names.

A call to a client is {X, C, call: {client, round}}; its reply {X, dC, metrics: {client, round,
num-examples, train-loss}}. X, C and dC are ArrayRecords of one array each, float[d], laid out as
:class:`fedmuon_app.algorithms.layout.Layout` says; round 0 asks for the start of C_i. A node is asked once,
by a query, which clients it plays: {clients: {ids, sizes}}.
"""

import io
import warnings
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.constant import SType
from numpy.lib import format as npy
from torch import Tensor

from fedmuon_app.algorithms.client import Update

FLAT = "flat"  # the array's name in its record


def to_record(x: Tensor) -> ArrayRecord:
    """A vector as a record, with one copy where flwr.app.Array makes two; float32 or float64 (not bfloat16)."""
    array, head = x.detach().cpu().numpy(), io.BytesIO()
    npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    data = b"".join((head.getvalue(), array.data))
    return ArrayRecord({FLAT: Array(str(array.dtype), array.shape, SType.NUMPY, data)})


def from_record(record: ArrayRecord) -> Tensor:
    """The inverse, without the two copies of :meth:`flwr.app.Array.numpy`: not to be written to.

    Raises:
        ValueError: it is not one vector of floats in numpy's format.
    """
    if list(record) != [FLAT]:
        raise ValueError(f"arrays {sorted(record)}, not one that is named {FLAT}")
    data = record[FLAT].data
    stream = io.BytesIO(data)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array in an unknown version of numpy's format")
    shape, _, dtype = npy.read_array_header_1_0(stream)
    if dtype not in (np.float32, np.float64) or len(shape) != 1:
        raise ValueError(f"an array of {dtype} and shape {list(shape)}, not a vector of floats")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given (NumPy array|buffer) is not writable")
        return torch.from_numpy(np.frombuffer(data, dtype, count=shape[0], offset=stream.tell()))


def call(X: ArrayRecord, C: ArrayRecord, client: int, round_: int) -> RecordDict:
    """A call to train."""
    return RecordDict({"X": X, "C": C, "call": ConfigRecord({"client": client, "round": round_})})


def read_reply(reply: Message, client: int, round_: int, device: torch.device) -> Update:
    """What ``client`` answered to the call of ``round_``.

    Args:
        reply: with content.
        client: whom the call was for.
        round_: which call it was.
        device: where the tensors go.

    Raises:
        ValueError: a record is missing or unreadable, or it answers another call.
    """
    try:
        metrics = reply.content.metric_records["metrics"]
        said = int(cast(float, metrics["client"])), int(cast(float, metrics["round"]))
        X, dC = (from_record(reply.content.array_records[name]).to(device) for name in ("X", "dC"))
        loss = float(cast(float, metrics["train-loss"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its reply cannot be read ({type(error).__name__}: {error})") from error
    if said != (client, round_):
        raise ValueError(f"it answers for client {said[0]} in round {said[1]}")
    return Update(X, dC, loss)


def sizes_record(sizes: Mapping[int, int]) -> RecordDict:
    """The answer to a node's query: number of examples by client id."""
    return RecordDict({"clients": ConfigRecord({"ids": list(sizes), "sizes": list(sizes.values())})})


def read_sizes(reply: Message) -> dict[int, int]:
    """The inverse."""
    record = reply.content.config_records["clients"]
    ids, sizes = cast(list[int], record["ids"]), cast(list[int], record["sizes"])
    return {int(i): int(m) for i, m in zip(ids, sizes, strict=True)}
