"""Ways to run the one round loop: in this process, through Flower on one machine, or on many."""

from collections.abc import Callable
from pathlib import Path

from fedmuon_app.config import Config
from fedmuon_app.engines import deployment, in_process, simulation

ENGINES: dict[str, Callable[[Config, Path], None]] = {
    "in_process": in_process.run,
    "simulation": simulation.run,
    "deployment": deployment.run,
}
