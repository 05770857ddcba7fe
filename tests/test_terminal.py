"""Commands whose output goes where it cannot: into a pipe that nobody reads any more, a closed stream, ASCII."""

import subprocess
import sys
from pathlib import Path

import pytest

FEDMUON = [sys.executable, "-m", "fedmuon_app"]
SHORT = ["rounds=3", "evaluation.every=1", "engine.workers=0"]


def test_a_reader_that_leaves_ends_no_run(tmp_path: Path) -> None:
    """``fedmuon | head -1``."""
    words = [*FEDMUON, *SHORT, f"hydra.run.dir={tmp_path / 'run'}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "round 1/3" in run.stdout.readline()
        run.stdout.close()
        assert run.stderr is not None
        assert run.stderr.read() == ""
    assert run.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()
    words = [str(Path(sys.executable).with_name("fedmuon-report")), str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as report:
        assert report.stdout is not None
        report.stdout.close()
        assert report.stderr is not None
        assert report.stderr.read() == ""
    assert report.returncode == 0
    assert (tmp_path / "report" / "index.html").exists()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_ends_no_run(closed: str, tmp_path: Path) -> None:
    words = [*FEDMUON, *SHORT, f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], check=False)
    assert done.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_what_ascii_has_not_is_escaped() -> None:
    done = subprocess.run([*FEDMUON, "--help"], capture_output=True, env={"PYTHONIOENCODING": "ascii"}, check=True)
    assert rb"\u03b2" in done.stdout
