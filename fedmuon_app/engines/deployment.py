"""Separate machines: submit the run to a SuperLink that is there, and show its log until it has ended."""

import re
import subprocess
import tempfile
from pathlib import Path

from fedmuon_app.config import Config
from fedmuon_app.config.schema import Engine
from fedmuon_app.engines.flwr import FlowerError, Flwr, run_config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.superlink import stage_app
from fedmuon_app.errors import InputError

ROUND = re.compile(r"round (\d+): accuracy ([\d.]+), loss (\S+), train loss (\S+)")
SAID = re.compile(r"(INFO|WARNING|ERROR) fedmuon: (.*)")


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says on the SuperNodes of a SuperLink. The run's folder is on the SuperLink's machine.

    Ctrl-C leaves the run to itself.

    Raises:
        InputError: the SuperLink or its authority's certificate is not named, or is not there.
        FlowerError: the run is refused, or did not complete.
    """
    certificate = certificate_of(c.engine)
    with tempfile.TemporaryDirectory(prefix="fedmuon-") as home, Progress(c.rounds, folder.name) as progress:
        flwr = Flwr(Path(home), str(c.engine.superlink), certificate)
        run_id = flwr.submit(stage_app(Path(home) / "app"), run_config(Path(home), c))
        progress.say(f"run {run_id} on {c.engine.superlink}; its folder there: {folder}")
        log = flwr.log(run_id)
        try:
            error = follow(log, progress)
        except KeyboardInterrupt:
            progress.say(f"run {run_id} goes on without this command; `flwr stop {run_id}` ends it")
            raise
        finally:
            log.terminate()
            log.wait()
        status, details = flwr.status(run_id)
        if status != "finished:completed":
            raise FlowerError(f"run {run_id} is {status}: {error or details}; its folder on the server: {folder}")


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


def follow(log: subprocess.Popen[str], progress: Progress) -> str:
    """Show the evaluations and warnings in a run's log until it ends; the last error in it."""
    error = ""
    for line in log.stdout or ():
        said = SAID.search(line)
        evaluated = ROUND.search(said[2]) if said else None
        if evaluated:
            r, accuracy, loss, trained = evaluated.groups()
            numbers = {"test_accuracy": float(accuracy), "test_loss": float(loss)}
            progress(int(r), numbers | {"train_loss": None if trained == "none" else float(trained)})
        elif said and said[1] == "ERROR":
            error = said[2]
        elif said:
            progress.say(said[2])
    return error
