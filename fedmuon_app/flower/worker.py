"""A process beside a SuperNode that answers the calls of its clients: what they need is imported and loaded once.

The first call starts it. It listens on a Unix socket in the node's state folder, answers one call at a time, and ends
with the SuperNode, or after IDLE seconds without a call. Code, node configuration and Python decide the socket's name:
what was started with others is never asked. Whatever happens to it, a client's state is on the disk before its answer.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from flwr.app import Context, Message

IDLE = 600.0  # seconds
STARTUP = 60.0  # seconds that it has to listen
PACKAGE = Path(__file__).resolve().parents[1]
NODE = ("flower-supernode", "flower-superexec")  # programs with which it ends


class NoWorkerError(Exception):
    """There is none, and none can be started."""


def ask(message: "Message", context: "Context") -> "Message":
    """The worker's answer to a message; a worker that is killed meanwhile is replaced once.

    Raises:
        NoWorkerError: there is none to be had.
    """
    folder = states_of(context.node_config)
    name = _name(context.node_config)
    for _ in range(2):
        with _calling(folder, name) as worker, contextlib.suppress(EOFError, ConnectionError):
            worker.send((message, context))
            answer: Message = worker.recv()
            return answer
    raise NoWorkerError("it has ended twice in the middle of this call (for memory, perhaps)")


def states_of(node_config: Any) -> Path:
    """The state folder that a node configuration names, by default ~/.local/state/fedmuon."""
    named = Path(str(node_config.get("state-dir") or "")).expanduser()
    home = os.environ.get("XDG_STATE_HOME")
    return named if named.is_absolute() else (Path(home) if home else Path.home() / ".local" / "state") / "fedmuon"


def main(folder: str, name: str, node: int) -> None:
    """The life of a worker: called by :func:`_start` in a process of its own.

    Args:
        folder: the state folder.
        name: of its socket there.
        node: process id with which it ends; 0: none.
    """
    from fedmuon_app.flower import calls

    seen = [time.monotonic(), False]  # the last call, and whether one is being answered
    threading.Thread(target=_end, args=(node, seen), daemon=True).start()
    with _short(Path(folder)) as short:
        socket = f"{short}/{name}.sock"
        with contextlib.suppress(FileNotFoundError):
            Path(socket).unlink()
        with Listener(socket, "AF_UNIX", backlog=64) as listener:
            while True:
                with listener.accept() as call, contextlib.suppress(EOFError, ConnectionError):
                    message, context = call.recv()
                    seen[1] = True
                    call.send(calls.app(message, context))
                seen[:] = time.monotonic(), False


def _end(node: int, seen: list[Any]) -> None:
    """End the process when the SuperNode is gone, or nobody has called for long."""
    while (not node or psutil.pid_exists(node)) and (seen[1] or time.monotonic() < seen[0] + IDLE):
        time.sleep(1)
    os._exit(0)


@contextlib.contextmanager
def _calling(folder: Path, name: str) -> Iterator[Connection]:
    """A connection to the worker, which is started where nobody listens; one process at a time looks."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / f"{name}.lock").open("w") as lock, _short(folder) as short:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            socket = f"{short}/{name}.sock"
            connection = _connected(socket)
            if connection is None:
                process = _start(folder, name)
                deadline = time.monotonic() + STARTUP
                while (connection := _connected(socket)) is None:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise NoWorkerError("it did not start: the lines above say why")
                    time.sleep(0.02)
    except OSError as error:
        raise NoWorkerError(f"{folder}: {error.strerror}") from error
    with connection:
        yield connection


def _connected(socket: str) -> Connection | None:
    try:
        return Client(socket, "AF_UNIX")
    except (FileNotFoundError, ConnectionError):
        return None


def _start(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """A worker that outlives this process."""
    node = next((p.pid for p in psutil.Process().parents() if set(NODE) & {Path(w).name for w in p.cmdline()[:2]}), 0)
    code = f"from fedmuon_app.flower.worker import main; main({str(folder)!r}, {name!r}, {node})"
    places = os.pathsep.join([str(PACKAGE.parent), *(place for place in sys.path if place)])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": places},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _name(node_config: Any) -> str:
    """Of the socket of the worker for this code and this configuration."""
    said = f"{PACKAGE} {PACKAGE.stat().st_mtime_ns} {sys.executable} {sorted(node_config.items())}"
    return f"worker-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Another path of a folder, on Linux, since a socket's may have 107 characters at most."""
    if sys.platform != "linux":
        yield str(folder)
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)
