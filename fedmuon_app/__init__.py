"""FedMuon: federated learning with bias-corrected Muon, and its rivals, on Flower."""

__version__ = "0.1.0"

import os

# Read by torch when it first allocates: vectors of megabytes come in huge pages. In pages of 4 KiB, a new one
# costs five times the arithmetic on it (docs/performance.md).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuon_app.algorithms.client import initial_state, local_round
    from fedmuon_app.algorithms.server import initial_server, server_step
    from fedmuon_app.api import Trained, deal, train
    from fedmuon_app.federation.callbacks import Callback

__all__ = ["Callback", "Trained", "deal", "initial_server", "initial_state", "local_round", "server_step", "train"]

_PLACES = {
    "train": "api", "deal": "api", "Trained": "api", "Callback": "federation.callbacks",
    "initial_state": "algorithms.client", "local_round": "algorithms.client",
    "initial_server": "algorithms.server", "server_step": "algorithms.server",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What is here by name is imported when it is asked for: torch takes seconds, which --help goes without."""
    if name not in _PLACES:
        raise AttributeError(f"fedmuon_app has no {name}")
    from importlib import import_module

    return getattr(import_module(f"fedmuon_app.{_PLACES[name]}"), name)
