"""A SuperLink with TLS and authenticated SuperNodes on loopback, as docs/deployment.md sets them up."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from fedmuon_app.certs import issue
from fedmuon_app.engines.flwr import Flwr
from fedmuon_app.engines.superlink import free_port, listens

BIN = Path(sys.executable).parent


class Cluster:
    """Separate processes: a SuperLink with a database, and ``nodes`` SuperNodes that play the clients in turn."""

    def __init__(self, folder: Path, nodes: int, data: Path | None = None, more: str = "") -> None:
        self.folder, self.count, self.data, self.more = folder, nodes, data, more
        self.certs, self.port = folder / "certs", free_port()
        self.ports = [free_port() for _ in range(nodes)]
        self.processes: dict[str, psutil.Popen] = {}
        issue(self.certs, ["127.0.0.1", "localhost"], nodes)
        (folder / "home").mkdir()
        self.flwr = Flwr(folder / "home", self.address, self.certs / "ca.crt")
        self.env = self.flwr.env | {"XDG_CACHE_HOME": str(folder / "cache")}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self.superlink()
        for i in range(self.count):
            self.register(i)
            self.node(i)

    def superlink(self) -> None:
        tls = [f"--ssl-{what}={self.certs / name}" for what, name in
               (("ca-certfile", "ca.crt"), ("certfile", "server.pem"), ("keyfile", "server.key"))]  # fmt: skip
        database = f"--database={self.folder / 'state.db'}"
        self._start("superlink", ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *tls,
                                  "--enable-supernode-auth", database])  # fmt: skip
        wait_for(lambda: listens(self.port), 60)

    def register(self, i: int) -> None:
        self.command("supernode", "register", str(self.certs / f"node-{i}.pub"), "own")

    def node(self, i: int, trust: Sequence[str] | None = None, key: Path | None = None) -> None:
        config = f'partition-id={i} num-partitions={self.count} state-dir="{self.state(i)}" {self.more}'
        if self.data is not None:
            config += f' data-path="{self.data / str(i)}"'
        if trust is None:
            trust = ("--root-certificates", str(self.certs / "ca.crt"))
        if key is None:
            key = self.certs / f"node-{i}"
        self._start(
            f"node-{i}",
            ["flower-supernode", *trust, "--superlink", self.address, "--host", "127.0.0.1",
             "--port", str(self.ports[i]), *(("--auth-supernode-private-key", str(key)) if key.name else ()),
             "--node-config", config],
        )  # fmt: skip

    def supervise(self, ended: dict[str, float]) -> None:
        """Start again what has ended, ten seconds later, as the unit in docs/deployment.md does."""
        for i in range(self.count):
            name = f"node-{i}"
            if name in self.processes and self.processes[name].poll() is None:
                ended.pop(name, None)
            elif time.monotonic() > ended.setdefault(name, time.monotonic()) + 10:
                if name in self.processes:
                    self.kill(name)
                self.node(i)
                del ended[name]

    def online(self) -> int:
        """How many nodes the SuperLink believes to be there."""
        nodes = json.loads(self.command("supernode", "list", "own", "--format", "json"))["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    def state(self, i: int) -> Path:
        return self.folder / f"state-{i}"

    def serverapp(self) -> psutil.Process | None:
        """The process of the run's server."""
        with suppress(KeyError, psutil.Error):
            for process in self.processes["superlink"].children(recursive=True):
                with suppress(psutil.Error):
                    if any("flwr-serverapp" in word for word in process.cmdline()[:3]):
                        return process
        return None

    def command(self, *words: str) -> str:
        done = subprocess.run(["flwr", *words], env=self.flwr.env, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def fedmuon(self, run: Path, *words: str) -> subprocess.Popen[str]:
        where = [f"engine.superlink={self.address}", f"engine.root_certificates={self.certs / 'ca.crt'}"]
        command = [sys.executable, "-m", "fedmuon_app", *words, "engine=deployment", *where, f"run_dir={run}"]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def kill(self, name: str) -> None:
        """SIGKILL, for the process and all that it started."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as out:
            self.processes[name] = psutil.Popen(
                [str(BIN / command[0]), *command[1:]], env=self.env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip


@contextmanager
def cluster(folder: Path, nodes: int, data: Path | None = None, more: str = "") -> Iterator[Cluster]:
    """Started; with ``data``, node i has the pictures in its folder i; ``more`` is of every node's configuration."""
    one = Cluster(folder, nodes, data, more)
    try:
        one.start()
        yield one
    finally:
        one.stop()


def workers(states: Path) -> list[psutil.Process]:
    """The processes that answer the calls of the node whose state folder this is."""
    return [p for p in psutil.process_iter(["cmdline"]) if f"main({str(states)!r}" in " ".join(p.info["cmdline"] or [])]


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
