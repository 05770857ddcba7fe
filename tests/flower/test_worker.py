import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedmuon_app.config import load, shared
from fedmuon_app.flower import worker
from fedmuon_app.flower.client_app import app
from fedmuon_app.flower.records import read_clients
from tests.deployment.cluster import wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="sockets by /proc")]

C = load(["engine=deployment", "engine.superlink=x:1", "federation.num_clients=4", "federation.clients_per_round=2"])


def context(folder: Path, **more: str | int) -> Context:
    config = {"partition-id": 1, "num-partitions": 2, "state-dir": str(folder), **more}
    return Context(run_id=1, node_id=5, node_config=config, state=RecordDict(), run_config={})


def question() -> Message:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    about = ConfigRecord({"experiment": "abcd", "config": shared(C)})
    message = Message(RecordDict({"about": about}), dst_node_id=5, message_type="query")
    message.metadata.__dict__["_message_id"] = "m"
    return message


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    deep = tmp_path / ("a" * 60) / ("b" * 60)  # a path that is too long for a socket's
    yield deep
    for one in workers(deep):
        one.kill()


def test_calls_are_answered_by_one_process_that_stays(folder: Path) -> None:
    for _ in range(2):
        reply = app(question(), context(folder))
        assert read_clients(reply, 4)[0].keys() == {1, 3}
    (one,) = workers(folder)
    assert (folder.stat().st_mode & 0o777) == 0o700
    one.send_signal(signal.SIGKILL)
    one.wait()
    assert read_clients(app(question(), context(folder)), 4)[0].keys() == {1, 3}
    (other,) = workers(folder)
    assert other.pid != one.pid


def test_another_configuration_of_the_node_has_another_worker(folder: Path) -> None:
    app(question(), context(folder))
    refused = app(question(), context(folder, threads=0))
    assert "threads = 0" in refused.error.reason
    assert len(workers(folder)) == 2


def test_it_ends_with_its_supernode_and_without_calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(worker, "NODE", ("sleep",))
    monkeypatch.setattr(psutil.Process, "parents", lambda self: [psutil.Process(node.pid)])
    app(question(), context(folder))
    assert len(workers(folder)) == 1
    node.kill()
    node.wait()
    wait_for(lambda: not workers(folder), 10)
    seen = [time.monotonic() - 2 * worker.IDLE, False]
    pid = os.fork()
    if pid == 0:
        worker._end(0, seen)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_call_whose_worker_cannot_be_had_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert read_clients(app(question(), context(tmp_path)), 4)[0].keys() == {1, 3}
    assert "without a worker: it did not start" in capsys.readouterr().err


def test_a_call_imports_neither_torch_nor_hydra() -> None:
    code = "import sys, fedmuon_app.flower.client_app, fedmuon_app.flower.arrays; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "hydra", "omegaconf", "sklearn", "datasets"} & set(loaded)
