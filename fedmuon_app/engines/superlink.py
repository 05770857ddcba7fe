"""A SuperLink of our own for one run: started, asked, and gone at the end with all that it started."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from fedmuon_app.engines.flwr import FlowerError, Flwr

PACKAGE = Path(__file__).resolve().parents[1]
STARTUP = 60.0  # seconds
PR_SET_PDEATHSIG = 1  # of prctl(2)
LONGEST_TMP = 20  # characters: Ray keeps sockets 90 characters below, and 107 is the most for a socket
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # for the arrays that Flower and Ray copy


class SuperLink(Flwr):
    """A running simulation SuperLink, and the ``flwr`` command pointed at it."""

    def __init__(self, home: Path, log: Path, cluster: str | None = None) -> None:
        """Start it on a free port of this machine.

        Args:
            home: its FLWR_HOME, an empty folder. Clients import the app from there.
            log: file for all that it and the run print.
            cluster: address of a Ray cluster; None: the run starts Ray here.

        Raises:
            FlowerError: it did not come up.
        """
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        super().__init__(home, self.address, None)
        self.env = HUGE_PAGES | self.env | {"FEDMUON_PID": str(os.getpid())}
        if cluster:
            self.env |= {"RAY_ADDRESS": cluster}
        with log.open("ab") as out:
            self._process = psutil.Popen(
                ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us first, and we end it in order
                preexec_fn=_ends_with_us,
            )
        deadline = time.monotonic() + STARTUP
        while not listens(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise FlowerError(f"Flower's SuperLink did not start; see {log}")
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def runs_something(self) -> bool:
        """Whether a run's own process is there (asking Flower would start a process each time)."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if any("flwr-simulation" in word for word in process.cmdline()[:3]):
                    return True
        return False

    def processes(self) -> list[psutil.Process]:
        """All that it has started."""
        return self._process.children(recursive=True)

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


def _ends_with_us() -> None:
    """In the new process: let the kernel end it when this one is gone, also by SIGKILL (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def superlink(log: Path, shared: str | None = None, cluster: str | None = None) -> Iterator[SuperLink]:
    """A SuperLink with a home of its own; both are gone afterwards.

    Args:
        log: file for all that it and the run print.
        shared: folder that the home lies in; None: the folder of temporary files.
        cluster: as :class:`SuperLink` has it.
    """
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= LONGEST_TMP else "/tmp"
    with tempfile.TemporaryDirectory(prefix="fedmuon-", dir=shared or short, ignore_cleanup_errors=True) as home:
        link = SuperLink(Path(home), log, cluster)
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


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Whether somebody listens on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
