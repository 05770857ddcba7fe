"""Ways to run the one round loop: in this process, or through Flower."""

from collections.abc import Callable
from pathlib import Path

from fedmuon_app.config import Config
from fedmuon_app.engines import in_process, simulation

ENGINES: dict[str, Callable[[Config, Path], None]] = {
    "in_process": in_process.run,
    "simulation": simulation.run,
}
