"""Separate machines: submit the run to a SuperLink that is there, and show its log until it has ended."""

import json
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fedmuon_app.config import Config
from fedmuon_app.config.schema import Engine
from fedmuon_app.engines.flwr import FlowerError, Flwr, run_config
from fedmuon_app.engines.handshake import check_superlink
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.superlink import stage_app
from fedmuon_app.errors import InputError

ROUND = re.compile(r"evaluated (\{.*\})")
GOES_ON = re.compile(r"goes on after round (\d+)")
PENDING = 60.0  # seconds in which a run must have begun
SAID = re.compile(r"(INFO|WARNING|ERROR) fedmuon: (.*)")


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says on the SuperNodes of a SuperLink. The run's folder is on the SuperLink's machine.

    Ctrl-C leaves the run to itself.

    Raises:
        InputError: the SuperLink or its authority's certificate is not named, is not there, or does not fit.
        FlowerError: the run is refused, does not begin, or did not complete.
    """
    certificate = certificate_of(c.engine)
    check_superlink(str(c.engine.superlink), certificate)
    with tempfile.TemporaryDirectory(prefix="fedmuon-") as home, Progress(c.rounds, folder.name) as progress:
        flwr = Flwr(Path(home), str(c.engine.superlink), certificate)
        run_id = flwr.submit(stage_app(Path(home) / "app"), run_config(Path(home), c))
        progress.say(f"run {run_id} on {c.engine.superlink}; its folder there: {folder}")
        log = flwr.log(run_id)
        try:
            error = follow(lines_of(log), progress, lambda: refuse_pending(flwr, run_id))
        except KeyboardInterrupt:
            progress.say(f"run {run_id} goes on without this command; `flwr stop {run_id}` ends it")
            raise
        finally:
            log.terminate()
            log.wait()
        status, details = flwr.status(run_id)
        if status != "finished:completed":
            raise FlowerError(f"run {run_id} is {status}: {error or details}; its folder on the server: {folder}")


def refuse_pending(flwr: Flwr, run_id: str) -> None:
    """Stop a run that has said nothing for PENDING seconds, if it has not begun.

    Raises:
        FlowerError: it has not.
    """
    status, _ = flwr.status(run_id)
    if status in ("pending", "starting"):
        flwr.stop_run(run_id)
        raise FlowerError(
            f"run {run_id} was still {status} after {PENDING:.0f} s, and is stopped: the SuperLink starts no server "
            "for it; its terminal, or its service's log, says why: its flower-superexec must run and reach it"
        )


def lines_of(log: subprocess.Popen[str]) -> Iterator[str | None]:
    """The lines of a process's output as they come; None once, when there was none for PENDING seconds."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in log.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    patience: float | None = PENDING
    while True:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            patience = None
            yield None
            continue
        if line is None:
            return
        if SAID.search(line):
            patience = None
        yield line


def certificate_of(engine: Engine) -> Path | None:
    """The certificate of the SuperLink's authority; None: no TLS.

    Raises:
        InputError: what ``engine`` says of the SuperLink cannot be used.
    """
    if not re.fullmatch(r"[^\s:/]+:\d+|\[[0-9a-fA-F:]+\]:\d+", engine.superlink or ""):
        raise InputError(f"engine.superlink = {engine.superlink}: must be ADDRESS:PORT of the SuperLink")
    if engine.insecure:
        return None
    named = engine.root_certificates
    if not named or not (file := Path(named).expanduser().absolute()).is_file():
        raise InputError(
            f"engine.root_certificates = {named}: must be the file of the authority's certificate (ca.crt); "
            "or set engine.insecure=true for a trial on one machine"
        )
    return file


def follow(lines: Iterable[str | None], progress: Progress, when_silent: Callable[[], None] = lambda: None) -> str:
    """Show the evaluations and warnings in a run's log until it ends; the last error in it.

    Args:
        lines: of the log; None where it has been silent from the beginning.
        progress: shows them.
        when_silent: called then.
    """
    error = ""
    for line in lines:
        if line is None:
            when_silent()
            continue
        said = SAID.search(line)
        evaluated = ROUND.search(said[2]) if said else None
        if evaluated:
            numbers = json.loads(evaluated[1])
            progress.show(int(numbers["round"]), numbers)
        elif said and (again := GOES_ON.search(said[2])):
            progress.goes_on(int(again[1]))
        elif said and said[1] == "ERROR":
            error = said[2]
        elif said:
            progress.say(said[2])
    return error
