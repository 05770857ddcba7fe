"""A worker a device, with the CPU in place of each."""

import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.workers import WorkerDiedError
from fedmuon_app.errors import InputError
from tests.engines.test_resume import same_run

pytestmark = pytest.mark.slow

SMALL = ["rounds=9", "evaluation.every=3", "checkpoint.every=4", "local.steps=2", "local.batch_size=8",
         "federation.num_clients=6", "federation.clients_per_round=3", "evaluation.diagnostics=5"]  # fmt: skip
TWO = "engine.devices=[cpu,cpu]"


@pytest.mark.parametrize("more", [[], ["algorithm=scaffold_adam", "algorithm.start=gradient"]])
def test_it_gives_the_bits_of_one_process(more: Sequence[str], tmp_path: Path) -> None:
    in_process.run(load([*SMALL, *more, TWO]), tmp_path / "devices")
    in_process.run(load([*SMALL, *more, "engine.workers=0"]), tmp_path / "alone")
    same_run(tmp_path / "devices", tmp_path / "alone")


def test_a_worker_that_is_killed_ends_the_run_and_a_resume_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(self: Progress, r: int, server: object) -> None:
        if r == 6:
            workers = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
            workers[0].send_signal(signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "after_round", watch)
        with pytest.raises(WorkerDiedError, match="exit code -9"):
            in_process.run(load([*SMALL, TWO]), tmp_path / "devices")
    in_process.run(load([*SMALL, TWO, "resume=auto"]), tmp_path / "devices")
    in_process.run(load([*SMALL, "engine.workers=0"]), tmp_path / "alone")
    assert (tmp_path / "devices/cohorts.jsonl").read_text() == (tmp_path / "alone/cohorts.jsonl").read_text()
    X, Y = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("devices", "alone"))
    assert X == Y


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("engine.workers=2", "engine.workers = 2: not with engine.devices"),
        ("engine.stacked=true", "engine.stacked = True: not with engine.devices"),
        ("engine.states=device", "engine.states = device: not with engine.devices"),
        ("checkpoint.every=null", "checkpoint.every = None: not with engine.devices"),
    ],
)
def test_what_does_not_go_with_it_is_refused(word: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        in_process.run(load([*SMALL, TWO, word]), tmp_path)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"device = cuda:97: torch sees \d+ GPUs here"):
        in_process.run(load([*SMALL, "engine.devices=[cpu,cuda:97]"]), tmp_path)
    with pytest.raises(InputError, match=r"engine.devices = \['tpu'\]: must name devices"):
        load([*SMALL, "engine.devices=[tpu]"])
