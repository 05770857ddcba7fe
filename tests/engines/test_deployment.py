import io
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines.deployment import certificate_of, follow, lines_of, refuse_pending
from fedmuon_app.engines.flwr import FlowerError
from fedmuon_app.engines.progress import Progress
from fedmuon_app.errors import InputError

LOG = """INFO :      Starting logstream for run_id `7`
INFO fedmuon: 2 rounds, 4 of 4 clients in each, seed 0
WARNING fedmuon: round 1: client 3 is dropped: X_i is not finite
INFO fedmuon: evaluated {"round": 1, "test_accuracy": 0.125, "test_loss": 2.3, "train_loss": null}
INFO fedmuon: evaluated {"round": 2, "test_accuracy": 0.25, "test_loss": null, "train_loss": 2.1}
ERROR fedmuon: no good reply in 3 rounds in a row: out of memory
INFO :      something of Flower's
"""


def test_a_runs_log_becomes_progress_warnings_and_the_reason_of_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = Mock(spec=subprocess.Popen, stdout=io.StringIO(LOG))
    with Progress(2, "run") as progress:
        assert follow(lines_of(log), progress) == "no good reply in 3 rounds in a row: out of memory"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "2 rounds, 4 of 4 clients in each, seed 0",
        "round 1: client 3 is dropped: X_i is not finite",
    ]
    assert lines[2].startswith("run  round 1/2  accuracy 0.125  test loss 2.300  train loss none")
    assert lines[3].startswith("run  round 2/2  accuracy 0.250  test loss none  train loss 2.100")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["engine.superlink=https://host:1"], "engine.superlink = https://host:1: must be ADDRESS:PORT"),
        (["engine.superlink=host"], "engine.superlink = host: must be ADDRESS:PORT"),
        (["engine.superlink=host:1"], "engine.root_certificates = None: must be the file"),
        (
            ["engine.superlink=host:1", "engine.root_certificates=/no/ca.crt"],
            "engine.root_certificates = /no/ca.crt: must",
        ),
    ],
)
def test_a_superlink_that_is_not_well_named_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        certificate_of(load(["engine=deployment", *words]).engine)


def test_a_certificate_or_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    words = ["engine=deployment", 'engine.superlink="[::1]:8000"', f"engine.root_certificates={tmp_path / 'ca.crt'}"]
    assert certificate_of(load(words).engine) == tmp_path / "ca.crt"
    assert certificate_of(load([*words, "engine.insecure=true"]).engine) is None


def test_a_run_that_goes_on_shows_the_speed_of_this_life(capsys: pytest.CaptureFixture[str]) -> None:
    last = '{"round": 91, "test_accuracy": 0.1, "test_loss": 2.3, "train_loss": 2.1}'
    log = ["INFO fedmuon: goes on after round 90\n", f"INFO fedmuon: evaluated {last}\n"]
    with Progress(100, "run") as progress:
        progress._started -= 900  # as long as if all 90 had been waited for
        follow(log, progress)
    assert "s/round" not in capsys.readouterr().out  # one round in no time, not 91 in 900 s


class Pending:
    stopped = ""

    def __init__(self, status: str) -> None:
        self._status = status

    def status(self, run_id: str) -> tuple[str, str]:
        return self._status, ""

    def stop_run(self, run_id: str) -> None:
        self.stopped = run_id


def test_a_run_that_does_not_begin_is_stopped_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmuon_app.engines.deployment.PENDING", 0.2)
    flwr, silent = Pending("pending"), subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE, text=True)
    try:
        with Progress(2, "run") as progress, pytest.raises(FlowerError, match="run 7 was still pending after 0 s"):
            follow(lines_of(silent), progress, lambda: refuse_pending(flwr, "7"))  # type: ignore[arg-type]
    finally:
        silent.kill()
        silent.wait()
    assert flwr.stopped == "7"


def test_a_run_that_is_slow_to_speak_is_left_alone() -> None:
    flwr = Pending("running")
    refuse_pending(flwr, "7")  # type: ignore[arg-type]
    assert not flwr.stopped
