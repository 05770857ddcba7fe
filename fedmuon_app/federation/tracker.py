"""TensorBoard beside metrics.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmuon_app.errors import InputError
from fedmuon_app.federation.runlog import Watch

FOLDER = "tensorboard"  # in the run's folder


def tracked(kind: str, folder: Path, watch: Watch) -> Watch:
    """``watch``, and every number of an evaluated round to TensorBoard's files in the run's folder.

    Args:
        kind: ``tensorboard``, or ``none`` for ``watch`` alone.
        folder: of the run.
        watch: what is told of every round anyway.

    Raises:
        InputError: TensorBoard is not installed.
    """
    if kind == "none":
        return watch
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(f"tracker = {kind}: it is not installed (pip install tensorboard)") from error
    writer: Any = None

    def both(r: int, line: Mapping[str, Any] | None) -> None:
        nonlocal writer
        watch(r, line)
        if line is None:
            return
        if writer is None:  # rounds that an earlier life of the run has logged after its checkpoint are taken back
            writer = SummaryWriter(str(folder / FOLDER), purge_step=r)
        for key, value in line.items():
            if key != "round" and value is not None:
                writer.add_scalar(key, value, r)
        writer.flush()

    return both
