import copy
import io
import pickle
import sys

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.flower.arrays import Common
from fedmuon_app.flower.records import FLAT, answer, call, from_record, read_answer, read_call, to_record
from tests.flower.fake_grid import FakeGrid

CPU = torch.device("cpu")
GRID = FakeGrid(1, {})
NODE = next(iter(GRID.contexts))


def a_call() -> Message:
    X = torch.arange(5.0)
    counted = Acknowledged(CallId(1, 6), CallId(1, 4))
    content = call(to_record(X), to_record(-X), 3, CallId(2, 7), counted, {"experiment": "ab", "hash": "0"})
    message = Message(content, dst_node_id=NODE, message_type="train")
    message.metadata.__dict__["_message_id"] = "m"
    return message


def test_a_call_and_its_answer() -> None:
    asked = a_call()
    assert read_call(asked.content.config_records["call"]) == (
        3,
        CallId(2, 7),
        Acknowledged(CallId(1, 6), CallId(1, 4)),
    )
    X, dC = torch.randn(5), torch.randn(5)
    update = read_answer(answer(asked, X, dC, 12, 0.25), asked, CPU)
    assert torch.equal(update.X, X)
    assert torch.equal(update.dC, dC)
    assert update.loss == 0.25


def test_the_bytes_of_an_array_travel_beside_its_pickle() -> None:
    record, beside = to_record(torch.arange(100.0)), []
    pickled = pickle.dumps(record, protocol=5, buffer_callback=beside.append)
    assert len(pickled) < 400
    there = np.frombuffer(beside[0], dtype=np.uint8).copy()  # what Ray shares between its processes
    x = from_record(pickle.loads(pickled, buffers=[memoryview(there).toreadonly()]))
    assert torch.equal(x, torch.arange(100.0))
    assert there.ctypes.data <= x.data_ptr() < there.ctypes.data + there.nbytes


class OneStore:
    """Ray's object store, as far as an array needs it."""

    def __init__(self) -> None:
        self.stored: list[np.ndarray] = []

    def is_initialized(self) -> bool:
        return True

    def put(self, x: np.ndarray) -> int:
        self.stored.append(x)
        return len(self.stored) - 1

    def get(self, reference: int) -> np.ndarray:
        return self.stored[reference]


def test_what_all_clients_get_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = OneStore()
    monkeypatch.setitem(sys.modules, "ray", ray)
    record = to_record(torch.arange(100.0), Common)
    messages = [pickle.dumps(record, protocol=5) for _ in range(8)]
    assert len(ray.stored) == 1
    assert max(map(len, messages)) < 400
    for message in messages:
        there = from_record(pickle.loads(message))
        assert torch.equal(there, torch.arange(100.0))
        assert ray.stored[0].ctypes.data <= there.data_ptr() < ray.stored[0].ctypes.data + ray.stored[0].nbytes
    monkeypatch.delitem(sys.modules, "ray")
    assert torch.equal(from_record(pickle.loads(pickle.dumps(record, protocol=5))), torch.arange(100.0))


@pytest.mark.parametrize("protocol", [4, 5])
def test_an_array_can_be_pickled_and_copied_as_any_other(protocol: int) -> None:
    record = to_record(torch.arange(5.0))
    for again in (pickle.loads(pickle.dumps(record, protocol=protocol)), copy.deepcopy(record)):
        assert torch.equal(from_record(again), torch.arange(5.0))
        assert isinstance(again[FLAT].data, bytes)


def test_over_a_network_an_array_is_one_of_flowers() -> None:
    (ours,) = to_record(torch.arange(5.0)).values()
    flowers = Array(ours.dtype, ours.shape, ours.stype, ours.data)
    assert ours.deflate() == flowers.deflate()
    assert ours.object_id == flowers.object_id


def with_bytes(data: bytes) -> ArrayRecord:
    return ArrayRecord({FLAT: Array("float32", (5,), "numpy.ndarray", data)})


@given(st.binary(max_size=300), st.integers(0, 300))
def test_whatever_the_bytes_are_they_are_read_or_refused(data: bytes, where: int) -> None:
    good = to_record(torch.arange(5.0))[FLAT].data
    for bytes_ in (data, good[:where], good[:where] + data, good[:10] + data + good[10:]):
        reply = answer(a_call(), torch.zeros(5), torch.zeros(5), 1, 0.5)
        reply.content["X"] = with_bytes(bytes_)
        try:
            X = read_answer(reply, a_call(), CPU).X
        except ValueError:
            continue
        assert X.ndim == 1


def test_a_pickle_is_not_opened() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (pytest.fail, ("a pickle was opened",))

    file = io.BytesIO()
    np.save(file, np.array([Bomb()], dtype=object), allow_pickle=True)
    for data in (file.getvalue(), pickle.dumps(Bomb())):
        with pytest.raises(ValueError, match=r"array|magic"):
            from_record(with_bytes(data))


@pytest.mark.parametrize("loss", ["text", None, [1.0, 2.0]])
def test_a_loss_that_is_no_number_is_refused(loss: object) -> None:
    reply = answer(a_call(), torch.zeros(5), torch.zeros(5), 1, 0.5)
    if loss is None:
        reply.content["metrics"] = MetricRecord({})
    else:
        del reply.content["metrics"]
        reply.content["metrics"] = (
            ConfigRecord({"train-loss": loss}) if isinstance(loss, str) else MetricRecord({"train-loss": loss})  # type: ignore[dict-item]
        )
    with pytest.raises(ValueError, match="cannot be read"):
        read_answer(reply, a_call(), CPU)


def test_an_empty_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_answer(Message(RecordDict(), reply_to=a_call()), a_call(), CPU)
