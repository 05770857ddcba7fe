"""C = (1/n) Σ C_i, from what lies on disk."""

from collections.abc import Sequence
from pathlib import Path

import torch

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.states import FileStates

CPU = torch.device("cpu")


def difference(run: Path, nodes: Sequence[Path], n: int) -> float:
    """‖C - (1/n) Σ C_i‖ / ‖C‖: C of the run's checkpoint, C_i as the nodes have it after the turns that it counts.

    For a method whose C_i is its M_i (FedMuon).
    """
    standing, _ = checkpoint.read(run, CPU)
    C = standing.server.C
    like = ClientState(C, C, C.new_zeros(0))
    total = torch.zeros_like(C)
    for i, turn in standing.counted.items():
        (folder,) = (node / standing.experiment for node in nodes if (node / standing.experiment / str(i)).is_dir())
        total += FileStates(folder, like, CPU).load(i, turn).C
    return float((C - total / n).norm() / C.norm())
