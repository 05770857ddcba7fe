"""A Flower run's configuration and its places on disk, for the ServerApp and the ClientApps."""

import os
import re
import sys
from pathlib import Path

from flwr.app import Context

from fedmuon_app.build import Job, build
from fedmuon_app.config import Config, load, loads, resumed, split
from fedmuon_app.federation.checkpoint import config_of, states_beside
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.states import ClientStates, FileStates, MappedStates

if (place := os.environ.get("FEDMUON_PATH")) and place not in sys.path:
    sys.path.append(place)  # the folder that `fedmuon` was called in: a model of the user's may be there

_jobs: dict[str, Job] = {}
_states: dict[tuple[str, str], ClientStates] = {}


def configuration(context: Context, engine: str) -> Config:
    """What ``flwr run`` was given: ``resolved``, the whole as YAML, or else ``overrides`` of conf/.

    Args:
        context: of the ServerApp.
        engine: what runs it, whatever the configuration says.

    Raises:
        InputError: it is not a valid configuration.
    """
    given = context.run_config
    if given.get("resolved"):
        config = loads(str(given["resolved"]))
    else:
        words = split(str(given.get("overrides", "")))
        config = load(words)
        if config.resume not in (None, "auto"):
            config = resumed(str(config.resume), config_of(Path(str(config.resume))), words)
            config.run_dir = config.resume
    config.engine.name = engine
    config.run_dir = config.run_dir or str(Path.home() / "fedmuon-runs" / str(context.run_id))
    return config


def job_of(config: str, context: Context) -> Job:
    """The run, built once a process; with the node's own images where its configuration names ``data-path``.

    Args:
        config: the run's configuration, as the server sends it.
        context: of the ClientApp.
    """
    own = context.node_config.get("data-path")
    key = f"{own} {config}"
    if key not in _jobs:
        _jobs[key] = build(loads(config), Path(str(own)) if own else None)
    return _jobs[key]


def states_of(config: str, experiment: str, context: Context) -> ClientStates:
    """What the node's clients keep: files of an experiment in ``state-dir``; in simulation rows of the run's file."""
    key = config, experiment
    if key not in _states:
        clients = job_of(config, context).clients
        states: ClientStates | None = simulated_states(loads(config), clients)
        if states is None:
            if not re.fullmatch("[0-9a-f]+", experiment):
                raise ValueError(f"experiment = {experiment}: must be a hexadecimal number")
            like, device = clients.initial_state(), clients.problem.device
            states = FileStates(state_dir(context) / experiment, like, device)
        _states[key] = states
    return _states[key]


def simulated_states(c: Config, clients: Clients) -> MappedStates | None:
    """What all clients keep, in the run's file; None for a run whose clients are on other machines."""
    if c.engine.name != "simulation":
        return None
    return states_beside(Path(str(c.run_dir)), len(clients.parts), clients.initial_state(), clients.problem.device)


def state_dir(context: Context) -> Path:
    """``state-dir`` of the node's configuration, or the user's place for states."""
    given = context.node_config.get("state-dir")
    if given:
        return Path(str(given))
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "fedmuon"
