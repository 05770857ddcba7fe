"""A Flower run's configuration and its places on disk, for the ServerApp and the ClientApps."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message

from fedmuon_app.config import Config, dump, load, loads, resumed, split
from fedmuon_app.data import pictures
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation.checkpoint import config_of, states_beside
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.states import ClientStates, FileStates
from fedmuon_app.flower.site import Site, site

log = logging.getLogger("fedmuon")

# where modules of the user's are: the folder that `fedmuon` was called in, and those beside own YAMLs
sys.path += [place for place in os.environ.get("FEDMUON_PATH", "").split(os.pathsep) if place and place not in sys.path]

_experiments: dict[str, Experiment] = {}  # of a deployed node, the one called last at the end
MOST_BUILT = 2  # of them that stay in memory
_simulations: dict[str, tuple[Experiment, ClientStates]] = {}  # by Flower's run id


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
        words = [word for word in split(str(given.get("overrides", ""))) if not word.startswith("engine=")]
        config = load([*words, f"engine={engine}"])  # values that depend on it are this engine's
        if config.resume not in (None, "auto"):
            config = resumed(str(config.resume), config_of(Path(str(config.resume))), words)
            config.run_dir = config.resume
    config.engine.name = engine
    config.run_dir = config.run_dir or str(Path.home() / "fedmuon-runs" / str(context.run_id))
    return config


@dataclass(frozen=True)
class Part:
    """A node's part of a run.

    Attributes:
        experiment: the run, built here.
        states: what its clients keep.
        plays: which clients these are.
        data: folder of their own pictures, if they have any.
    """

    experiment: Experiment
    states: ClientStates
    plays: Callable[[int], bool]
    data: Path | None = None

    def notes(self) -> list[str]:
        """What the server should know of the data; the site's own log has the names."""
        others = pictures.other_classes(self.data, self.experiment.data.classes) if self.data else []
        if not others:
            return []
        log.warning("%s: passed over, not among dataset.classes: %s", self.data, ", ".join(others))
        return [f"{len(others)} of its class folders are not among dataset.classes, and are passed over"]


def question_of(message: Message, context: Context) -> Part:
    """The node's part, by the query that asks for its clients.

    Raises:
        SiteError: the node's configuration is wrong, or it refuses the server's.
    """
    about = message.content.config_records["about"]
    experiment = str(about["experiment"])
    if simulated():
        return _simulated(context, experiment)
    here = site(context.node_config)
    config = here.meet(experiment, str(about["config"]))
    _experiments.pop(_key(here, config), None)  # its data may have changed since another run
    return _deployed(here, experiment, config)


def part_of(experiment: str, sha256: str, context: Context) -> Part:
    """The same, by what a call says of the run.

    Raises:
        SiteError: as above, or the node has not been asked with that configuration.
    """
    if simulated():
        return _simulated(context, experiment)
    here = site(context.node_config)
    return _deployed(here, experiment, here.recall(experiment, sha256))


def simulated() -> bool:
    """Whether this process is an actor of Ray: then server and client are one machine's, and one user's."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _deployed(here: Site, experiment: str, config: Config) -> Part:
    key = _key(here, config)
    built = _experiments.pop(key, None) or build(config, here.data)
    _experiments[key] = built
    for old in list(_experiments)[:-MOST_BUILT]:
        del _experiments[old]
    states = FileStates(here.folder(experiment), built.clients.initial_state(), built.clients.objective.device)
    return Part(built, states, here.plays, here.data)


def _key(here: Site, config: Config) -> str:
    return f"{here} {dump(config)}"


def _simulated(context: Context, experiment: str) -> Part:
    node, nodes = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    key = str(context.run_id)
    if key not in _simulations:
        config = configuration(context, "simulation")
        built = build(config)
        states = simulated_states(config, built.clients, experiment)
        assert states is not None
        _simulations[key] = built, states
    return Part(*_simulations[key], lambda client: client % nodes == node)


def simulated_states(c: Config, clients: Clients, experiment: str) -> ClientStates | None:
    """What all clients keep: in one file of the run's folder, or in files of what the machines of a cluster share.

    None for a run whose clients are on machines of their own.
    """
    if c.engine.name != "simulation":
        return None
    like, device = clients.initial_state(), clients.objective.device
    if c.engine.shared:
        return FileStates(shared_states(c.engine.shared, experiment), like, device)
    return states_beside(Path(str(c.run_dir)), len(clients.parts), like, device)


def shared_states(shared: str, experiment: str) -> Path:
    """The folder of an experiment's states under ``engine.shared``."""
    return Path(shared) / "states" / experiment
