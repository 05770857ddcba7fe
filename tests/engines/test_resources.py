import socket
from collections.abc import Iterator

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import resources
from fedmuon_app.engines.resources import check_resources
from fedmuon_app.errors import InputError


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_more_than_this_machine_has_is_refused_before_anything_starts() -> None:
    check_resources(load(["engine=simulation"]).engine, gpus=0)
    check_resources(load(["engine.gpus_per_client=0.5"]).engine, gpus=1)
    for word, said in (
        ("engine.cpus_per_client=6400", r"engine.cpus_per_client = 6400: this machine has \d+ cores"),
        ("engine.gpus_per_client=1", r"engine.gpus_per_client = 1: this machine has 0 GPUs"),
    ):
        with pytest.raises(InputError, match=said):
            check_resources(load([word]).engine, gpus=0)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody listens there and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_a_sentence(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "ANSWER", 8.0)
    for address in (f"127.0.0.1:{silent_port}", "127.0.0.1:1"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=f"RAY_ADDRESS = {address}: no Ray cluster answers there"):
            check_resources(load([]).engine, gpus=0)
