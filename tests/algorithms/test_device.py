"""The path of a GPU without one, in a process of its own: after it torch's autograd can fork no workers."""

import subprocess
import sys
from pathlib import Path


def test_the_path_of_a_gpu() -> None:
    checks = Path(__file__).with_name("device_checks.py")
    command = [sys.executable, "-m", "pytest", "-q", str(checks)]
    done = subprocess.run(command, cwd=checks.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
