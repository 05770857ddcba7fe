"""What is told of a run while it goes on: its bar, trackers, and whatever somebody wants to see or count."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.server import Server
from fedmuon_app.errors import InputError
from fedmuon_app.federation.checkpoint import RunState


class Callback:
    """Does nothing; override what you need. An exception ends the run, with a checkpoint."""

    def measure(self, before: Server, after: RunState, good: Mapping[int, Update]) -> Mapping[str, float | None]:
        """Asked when a round has been evaluated: further numbers for its line of metrics.jsonl.

        Args:
            before: the server at the start of the round.
            after: the standing after it.
            good: the replies that were counted, by client.
        """
        return {}

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""

    def after_round(self, r: int, server: Server) -> None:
        """Round ``r`` is over; the server after it."""

    def before_checkpoint(self, standing: RunState) -> None:
        """A checkpoint of ``standing`` is about to be written."""

    def at_end(self, result: Mapping[str, Any]) -> None:
        """The run is complete: result.json."""


class TensorBoard(Callback):
    """Every number of an evaluated round to TensorBoard's files in the run's folder."""

    def __init__(self, folder: Path) -> None:
        """Set the run's folder."""
        from torch.utils.tensorboard import SummaryWriter

        self._make: Any = SummaryWriter
        self._folder = folder / "tensorboard"
        self._writer: Any = None

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        if self._writer is None:  # what an earlier attempt has logged after its checkpoint is taken back
            self._writer = self._make(str(self._folder), purge_step=line["round"])
        for key, value in numbers(line).items():
            self._writer.add_scalar(key, value, line["round"])
        self._writer.flush()


class MLflow(Callback):
    """A run of MLflow, in a file beside the run's folder or where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: Path) -> None:
        """Set the run's folder."""
        import mlflow

        place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute().parent / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(place)
        experiment = self._client.get_experiment_by_name("fedmuon")
        found = experiment.experiment_id if experiment else self._client.create_experiment("fedmuon")
        self._run = self._client.create_run(found, run_name=folder.name).info.run_id

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        for key, value in numbers(line).items():
            self._client.log_metric(self._run, key, value, step=line["round"])

    def at_end(self, result: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._client.set_terminated(self._run)


class WandB(Callback):
    """A run of Weights & Biases in the run's folder; offline, unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path) -> None:
        """Set the run's folder."""
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(project="fedmuon", name=folder.name, dir=str(folder), mode=mode)

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._run.log(numbers(line), step=line["round"])

    def at_end(self, result: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._run.finish()


TRACKERS = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def tracker(kind: str, folder: Path) -> list[Callback]:
    """The tracker of that name for the run in ``folder``; ``none``: none.

    Raises:
        InputError: its package is not installed.
    """
    if kind == "none":
        return []
    try:
        return [TRACKERS[kind](folder)]
    except ImportError as error:
        raise InputError(f"tracker = {kind}: it is not installed (pip install {kind})") from error


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """What of a line can be drawn."""
    return {key: float(value) for key, value in line.items() if key != "round" and value is not None}
