"""What a deployed run must leave on the disks: the X of one process, and C = (1/n) Σ C_i."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.states import ClientStates, FileStates

CPU = torch.device("cpu")


def bend(standing: RunState, states_of: Callable[[int], ClientStates], n: int) -> float:
    """‖C - (1/n) Σ C_i‖ over the root mean square of the ‖C_i‖ (float32's rounding is of their size, not of C's).

    C is the checkpoint's, C_i the client's after the call_id that the checkpoint counts.
    """
    kept: list[Tensor] = [states_of(i).load(i, call_id).C.double() for i, call_id in standing.counted.items()]
    off = standing.server.C.double() - torch.stack(kept).sum(0) / n
    return float(off.norm() / (torch.stack(kept).square().sum() / n).sqrt())


def difference(run: Path, nodes: Sequence[Path], n: int) -> float:
    """The same of a deployed run, from the nodes' state folders; for a method whose C_i is its M_i (FedMuon)."""
    standing, _ = checkpoint.read(run)
    like = ClientState(standing.server.C, standing.server.C)

    def states_of(client: int) -> ClientStates:
        experiments = [node / standing.experiment for node in nodes]
        (folder,) = (folder for folder in experiments if (folder / str(client)).is_dir())
        return FileStates(folder, like, CPU)

    return bend(standing, states_of, n)


def same_X_as_one_process(run: Path, words: list[str]) -> None:
    """Up to 1e-5, layer by layer."""
    in_process.run(load(words), run.parent / "alone")
    X, Y = (load_file(folder / "model.safetensors") for folder in (run.parent / "alone", run))
    assert all((Y[w] - x).norm() <= 1e-5 * x.norm() for w, x in X.items())
