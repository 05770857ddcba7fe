"""The examples run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("own_data", "fedmuon 0.9"), ("table", "test_mae"), ("text", "perplexity")])
def test_it_runs(name: str, said: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout or said.replace("0.9", "1.0") in done.stdout


def test_there_are_no_others() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"own_data", "table", "text"}
