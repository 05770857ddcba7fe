"""A SuperLink of our own for one run: started, asked, and gone at the end with all that it started."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from fedmuon_app.errors import RunError

PACKAGE = Path(__file__).resolve().parents[1]
STARTUP = 60.0  # seconds
LONGEST_TMP = 20  # characters: Ray keeps sockets 90 characters below, and 107 is the most for a socket
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # for the arrays that Flower and Ray copy


class FlowerError(RunError):
    """Flower refused or failed a run; the message holds its words."""


class SuperLink:
    """A running simulation SuperLink, and the ``flwr`` command pointed at it."""

    def __init__(self, home: Path, log: Path) -> None:
        """Start it on a free port of this machine.

        Args:
            home: its FLWR_HOME, an empty folder.
            log: file for all that it and the run print.

        Raises:
            FlowerError: it did not come up.
        """
        # Flower finds its other programs on the PATH, where those of a virtual environment may not be
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        self._env = HUGE_PAGES | os.environ | QUIET | {"FLWR_HOME": str(home), "RAY_TMPDIR": str(home), "PATH": path}
        port = _free_port()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        with log.open("ab") as out:
            self._process = psutil.Popen(
                ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us first, and we end it in order
            )
        deadline = time.monotonic() + STARTUP
        while not _listens(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise FlowerError(f"Flower's SuperLink did not start; see {log}")
            time.sleep(0.05)

    def submit(self, app: Path, run_config: Path, nodes: int, cpus: int, gpus: float) -> str:
        """Submit a run; its id.

        Raises:
            FlowerError: it is refused.
        """
        federation = f"num-supernodes={nodes} client-resources-num-cpus={cpus} client-resources-num-gpus={gpus}"
        answer = self._flwr("run", str(app), "own", "--run-config", str(run_config), "--federation-config", federation)
        if not answer.get("success"):
            raise FlowerError(f"Flower refuses the run: {answer.get('error-message', answer)}")
        return str(answer["run-id"])

    def status(self, run_id: str) -> tuple[str, str]:
        """The run's status, e.g. ``finished:completed``, and what Flower says of it."""
        (run,) = self._flwr("list", "own", "--run-id", run_id)["runs"]
        return str(run["status"]), str(run.get("status-details") or "")

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def runs_something(self) -> bool:
        """Whether a run's own process is there (asking Flower would start a process each time)."""
        for process in self._process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any("flwr-simulation" in word for word in process.cmdline()[:3]):
                    return True
        return False

    def stop(self) -> None:
        """End it and every process below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            processes = [self._process, *self._process.children(recursive=True)]
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            _, left = psutil.wait_procs(processes, timeout=5)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)

    def _flwr(self, *words: str) -> Any:
        done = subprocess.run(
            ["flwr", *words, "--format", "json"], env=self._env, capture_output=True, text=True, check=False
        )
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise FlowerError(f"flwr {words[0]}: {done.stdout.strip()} {done.stderr.strip()}") from None


@contextlib.contextmanager
def superlink(log: Path) -> Iterator[SuperLink]:
    """A SuperLink with a home of its own; both are gone afterwards."""
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_TMP else "/tmp"
    with tempfile.TemporaryDirectory(prefix="fedmuon-", dir=short, ignore_cleanup_errors=True) as home:
        link = SuperLink(Path(home), log)
        try:
            yield link
        finally:
            link.stop()


def stage_app(folder: Path) -> Path:
    """Copy the package, conf/ and pyproject.toml as ``flwr run`` wants them, from a clone or a wheel."""
    root = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "conf", "*.toml"))
    shutil.copytree(root / "conf", folder / "conf")
    shutil.copy(root / "pyproject.toml", folder)
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
