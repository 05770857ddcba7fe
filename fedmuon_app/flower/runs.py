"""A Flower run's configuration and its places on disk, the same for the ServerApp and the ClientApps."""

import os
from pathlib import Path

from flwr.app import Context

from fedmuon_app.algorithms.client import initial_state
from fedmuon_app.build import Job, build
from fedmuon_app.config import Config, load, loads, split
from fedmuon_app.federation.states import ClientStates, FileStates, MappedStates

_jobs: dict[str, Job] = {}
_states: dict[Path, ClientStates] = {}


def configuration(context: Context) -> Config:
    """What ``flwr run`` was given: ``resolved``, the whole as YAML, or else ``overrides`` of conf/.

    Raises:
        InputError: it is not a valid configuration.
    """
    given = context.run_config
    config = loads(str(given["resolved"])) if given.get("resolved") else load(split(str(given.get("overrides", ""))))
    config.engine.name = "simulation"  # whatever conf/ says, Flower is running it
    return config


def job_of(context: Context) -> Job:
    """The run, built once a process; with the node's own images where its configuration names ``data-path``."""
    own = context.node_config.get("data-path")
    key = f"{own} {context.run_config}"
    if key not in _jobs:
        _jobs[key] = build(configuration(context), Path(str(own)) if own else None)
    return _jobs[key]


def results_of(config: Config, context: Context) -> Path:
    """Where the run's folder stands: ``run_dir``, or a folder of the user's home named by the run."""
    return Path(config.run_dir) if config.run_dir else Path.home() / "fedmuon-runs" / str(context.run_id)


def states_of(context: Context) -> ClientStates:
    """What this process's clients keep: a file each in the node's ``state-dir``, or rows of one file of the run."""
    given = context.node_config.get("state-dir")
    folder = Path(str(given)) if given else run_home(context)
    if folder not in _states:
        clients = job_of(context).clients
        device = clients.problem.device
        if given:
            _states[folder] = FileStates(folder, device)
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            like = initial_state(clients.method, clients.problem.X0())
            _states[folder] = MappedStates(folder / "clients", len(clients.parts), like, device)
    return _states[folder]


def run_home(context: Context) -> Path:
    """A folder of the run in Flower's home, gone when the run has ended."""
    return Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr")) / "fedmuon" / str(context.run_id)
