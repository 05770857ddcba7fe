"""The ServerApp: builds the run, lets the strategy train it, and writes the run's folder."""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from fedmuon_app.config import Config, dump
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.experiment import build, header, keeping, refuse_another_run, trackers
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.folder import CLIENTS
from fedmuon_app.federation.jsonl import dumped
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.flower.records import to_record
from fedmuon_app.flower.runs import configuration, shared_states, simulated_states
from fedmuon_app.flower.strategy import FedMuonStrategy
from fedmuon_app.flower.vce import make_prompt

log = logging.getLogger("fedmuon")

app = ServerApp()

PATIENCE = 10  # seconds that the process has for an end in order


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the whole federation; an exception makes Flower's run a failed one."""
    if pid := os.environ.get("FEDMUON_PID"):
        threading.Thread(target=_end_with, args=(int(pid),), daemon=True).start()
    config = configuration(context, "simulation" if isinstance(grid, InMemoryGrid) else "deployment")
    folder = Path(str(config.run_dir))
    _start_log(folder, config)
    runlog = None
    try:
        if config.resume is not None:
            refuse_another_run(config, folder)  # only here is the folder to be seen
        experiment = build(config)
        told: list[Callback] = [_Said(), *trackers(config, folder)]
        runlog = RunLog(folder, header(config, experiment), told, keeping(config))  # before the clients' file is opened
        states = None
        if config.evaluation.diagnostics is not None:
            states = simulated_states(config, experiment.clients, runlog.experiment)
        told += experiment.diagnostics(config, states)
        experiment.note_labels(folder)
        if isinstance(grid, InMemoryGrid):
            make_prompt(grid)
        strategy = FedMuonStrategy(experiment, runlog, config)
        strategy.start(grid, to_record(experiment.server.X), config.rounds, config.federation.round_timeout)
        X = strategy.server.X
        runlog.finish(experiment.model(X), experiment.about_model(config), experiment.more(config, X))
        log.info("results: %s", folder)
    except Exception as error:
        log.error("%s%s", "" if isinstance(error, (InputError, RunError)) else type(error).__name__ + ": ", error)
        raise
    finally:
        if config.checkpoint.every is None:
            (folder / CLIENTS).unlink(missing_ok=True)
            if runlog is not None and config.engine.shared:
                shutil.rmtree(shared_states(config.engine.shared, runlog.experiment), ignore_errors=True)


def _end_with(pid: int) -> None:
    """End this process, and Ray with it, when ``fedmuon`` is gone without a word: nobody else would."""
    while psutil.pid_exists(pid):
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)


def _start_log(folder: Path, config: Config) -> None:
    """run.log, and .hydra/config.yaml where Hydra has not written it (a bare ``flwr run``)."""
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    resolved = folder / ".hydra" / "config.yaml"
    if not resolved.exists():
        resolved.write_text(dump(config))
    file = logging.FileHandler(folder / "run.log")
    file.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(file)
    stream = logging.StreamHandler()
    stream.setFormatter(logging.Formatter("%(levelname)s fedmuon: %(message)s"))
    log.addHandler(stream)
    log.setLevel(logging.INFO)


class _Said(Callback):
    """Evaluated rounds in the log, for ``flwr log`` and who follows it: as JSON, the losses and what is measured."""

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        shown = {key: x for key, x in line.items() if key.startswith("test_") or key in ("round", "train_loss")}
        log.info("evaluated %s", dumped(shown))
