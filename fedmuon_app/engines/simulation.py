"""Flower's Ray engine: submit the run with its whole configuration, follow its folder, end as it ended."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch

from fedmuon_app.config import Config
from fedmuon_app.engines.flwr import FlowerError, run_config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.resources import check_resources
from fedmuon_app.engines.superlink import SuperLink, stage_app, superlink
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build, keeping, pick_device
from fedmuon_app.federation.checkpoint import rounds_in
from fedmuon_app.federation.folder import METRICS, RESULT
from fedmuon_app.federation.lock import take
from fedmuon_app.federation.loop import nonempty_clients

LOOK = 0.5  # seconds between looks into the run's folder
MOST_NODES = 256  # of Flower's: it looks through all of them every 0.1 s, and a node may play several clients
ASK = 20.0  # seconds between questions to Flower; each starts a process of some seconds


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says on Flower's Ray engine; the ServerApp writes the run's folder.

    Raises:
        InputError: something the user can mend, before anything starts.
        FlowerError: the run did not complete.
    """
    cluster = check_resources(c.engine, torch.cuda.device_count())
    if pick_device(c.device).type == "cuda" and c.engine.gpus_per_client == 0:
        raise InputError(
            "engine.gpus_per_client = 0: clients would train on the CPU although there is a GPU; "
            "give each a share, e.g. 0.25, or set device=cpu"
        )
    experiment = build(c)  # what does not fit is said here, before a SuperLink starts
    nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round)
    del experiment
    take(folder, keeping(c).resume).close()
    done = rounds_in(folder) if c.resume else 0
    with (
        tempfile.TemporaryDirectory(prefix="fedmuon-app-") as staged,
        superlink(folder / "flower.log", c.engine.shared, cluster) as link,
        Progress(c.rounds, folder.name, done) as progress,
    ):
        progress.say(f"Flower's SuperLink listens on {link.address}, without a password: docs/security.md")
        run_id = submit(link, c, stage_app(Path(staged) / "app"))
        follow(link, run_id, folder, progress, done)


def submit(link: SuperLink, c: Config, app: Path) -> str:
    """Hand the whole configuration to Flower; the run's id. Results go to ``run_dir``."""
    n, S = c.federation.num_clients, c.federation.clients_per_round
    federation = nodes(min(n, max(MOST_NODES, 4 * S)), c.engine.cpus_per_client, c.engine.gpus_per_client)
    return link.submit(app, run_config(app.parent, c), federation)


def nodes(count: int, cpus: int, gpus: float) -> str:
    """A federation of so many simulated nodes, in Flower's words; with what each takes while it trains."""
    return f"num-supernodes={count} client-resources-num-cpus={cpus} client-resources-num-gpus={gpus}"


def follow(link: SuperLink, run_id: str, folder: Path, progress: Progress, done: int = 0) -> None:
    """Show the evaluations and warnings in the run's folder until the run has ended.

    Args:
        link: where it runs.
        run_id: Flower's.
        folder: the run's.
        progress: shows them.
        done: rounds of an earlier life, which are not shown.

    Raises:
        FlowerError: it failed, was stopped, or the SuperLink is gone.
    """
    metrics, log = Tail(folder / METRICS), Tail(folder / "run.log")
    asked, started = time.monotonic(), False
    status, details = "running", ""
    errors: list[str] = []
    while not status.startswith("finished"):
        time.sleep(LOOK)
        if not link.alive():
            raise FlowerError(f"Flower's SuperLink ended in the middle of the run; see {folder / 'flower.log'}")
        running = link.runs_something()
        if (started and not running) or time.monotonic() > asked + ASK:
            status, details = link.status(run_id)
            asked = time.monotonic()
        started |= running
        for line in metrics.lines():
            evaluation = json.loads(line)
            if evaluation["round"] > done:
                progress.show(evaluation["round"], evaluation)
        for line in log.lines():
            level, _, text = line.partition(" ")
            if level == "WARNING":
                progress.say(text)
            elif level == "ERROR":
                errors.append(text)
    if status != "finished:completed" or not (folder / RESULT).exists():
        reason = errors[-1] if errors else f"{details} (see {folder / 'flower.log'})"
        raise FlowerError(f"the run is {status}: {reason}")


class Tail:
    """The new whole lines of a file that somebody else writes, or replaces, and that may not be there yet."""

    def __init__(self, file: Path) -> None:
        """What is in the file by now is not new."""
        self._file, self._read, self._inode = file, 0, 0
        if file.exists():
            self._read, self._inode = file.stat().st_size, file.stat().st_ino

    def lines(self) -> list[str]:
        """Those that came since the last call; all of a file that has replaced the last one."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as stream:
            inode = os.fstat(stream.fileno()).st_ino
            if inode != self._inode:
                self._read, self._inode = 0, inode
            stream.seek(self._read)
            whole, _, _ = stream.read().rpartition(b"\n")
        if not whole:
            return []
        self._read += len(whole) + 1
        return whole.decode().splitlines()
