"""A Flower run's configuration and its places on disk, the same for the ServerApp and the ClientApps."""

import os
from pathlib import Path

from flwr.app import Context

from fedmuon_app.build import Job, build
from fedmuon_app.config import Config, load, loads, split

_jobs: dict[str, Job] = {}


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


def states_of(context: Context) -> Path:
    """Where clients keep their states: ``state-dir`` of the node's configuration, or in Flower's home."""
    if "state-dir" in context.node_config:
        return Path(str(context.node_config["state-dir"]))
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    return home / "fedmuon" / str(context.run_id)
