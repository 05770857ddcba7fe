"""FedMuon: federated learning with bias-corrected Muon, and its rivals, on Flower."""

__version__ = "0.1.0"

import os

# Read by torch when it first allocates: vectors of megabytes come in huge pages. In pages of 4 KiB, a new one
# costs five times the arithmetic on it (docs/performance.md).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
