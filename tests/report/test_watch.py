import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.federation.folder import GOING, RESULT
from fedmuon_app.report.files import read_runs
from fedmuon_app.report.watch import html, state, sweeps

WORDS = ["rounds=4", "evaluation.every=2", "engine.workers=0", "checkpoint.every=null"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one is complete, of the other the last evaluation is still to come."""
    folder = tmp_path_factory.mktemp("sweep")
    for name in ("fedavg", "fedmuon"):
        in_process.run(load([*WORDS, f"algorithm={name}"]), folder / name)
    half = folder / "fedmuon"
    result = json.loads((half / RESULT).read_text())
    (half / GOING).write_text(
        json.dumps({k: result[k] for k in ("algorithm", "dataset", "seed", "config", "versions")})
    )
    (half / RESULT).unlink()
    first, second = (half / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text(first + second[:20])  # being written
    return folder


def test_a_run_leaves_no_trace_of_having_gone_on(tmp_path: Path) -> None:
    in_process.run(load([*WORDS, "algorithm=fedavg"]), tmp_path)
    assert not (tmp_path / GOING).exists()


def test_the_page_shows_what_goes_on_beside_what_is_complete(sweep: Path) -> None:
    page = html([sweep], list)
    assert '<meta http-equiv="refresh" content="10">' in page
    assert 'sessionStorage.getItem("figure")' in page  # what was chosen outlives the page's next look
    assert "1 of 2 runs are going on" in page
    assert "2 of 4" in page
    assert [run.folder.name for run in read_runs([sweep])] == ["fedavg"]


def test_how_long_the_whole_sweep_will_take(sweep: Path) -> None:
    (sweep / "sweep.json").write_text('{"runs": 5, "before": 0, "began": 0}')
    assert f"{sweep.name}: 1 of 5 runs have ended." in html([sweep], list)  # nothing trains
    (sweep / "fedmuon" / ".lock").touch()
    runs = [run for run in read_runs([sweep], going=True) if run.lines]
    done, half = sorted(runs, key=lambda run: bool(run.result.get("going")))
    whole = half.lines[-1]["seconds"] * 4 / half.lines[-1]["round"]
    typical = (done.lines[-1]["seconds"] + whole) / 2
    left = timedelta(seconds=round(whole - half.lines[-1]["seconds"] + 3 * typical))  # three more, one after the other
    assert sweeps([sweep], runs) == [f"{sweep.name}: 1 of 5 runs have ended, {left} left."]


def test_it_is_made_anew_when_there_is_something_new(sweep: Path) -> None:
    before = state([sweep])
    assert state([sweep]) == before
    with (sweep / "fedmuon" / "metrics.jsonl").open("a") as stream:
        stream.write(" ")
    assert state([sweep]) != before


def test_before_the_first_evaluation(tmp_path: Path) -> None:
    (tmp_path / GOING).write_text("{}")
    assert "No run has an evaluation yet" in html([tmp_path], list)


@pytest.fixture
def served(sweep: Path) -> Iterator[str]:
    command = [sys.executable, "-c", "from fedmuon_app.report.cli import main; main()", str(sweep), "--watch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().split()[0]
    process.terminate()
    process.wait(10)


@pytest.mark.slow
def test_it_is_served_on_this_machine_alone(served: str) -> None:
    assert served.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(served) as answer:
        assert "going on" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(served + "etc/passwd")


@pytest.mark.parametrize("port", ["99999", "taken"])
def test_a_port_that_cannot_be_had_is_one_sentence(port: str, sweep: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1]) if port == "taken" else port
        command = [str(Path(sys.executable).with_name("fedmuon-report")), "--watch", str(sweep), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"fedmuon-report: --port {port}: cannot be had on 127.0.0.1 (")
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("fedmuon-report")), "--watch", str(tmp_path / "nix")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "nix is not a folder" in done.stderr) == (2, True)
