"""Quantities."""

from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.tasks import ByExample, counts


@dataclass(frozen=True)
class Regression(ByExample):
    """Squared error of outputs and targets, float[B, quantities] both; the loss is the mean over the quantities."""

    metrics = ("loss", "mae")

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See :class:`fedmuon_app.tasks.Task`."""
        return (outputs - targets.to(outputs.dtype)).square().mean(1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many, and the sums of their squared and absolute errors."""
        error = (outputs - targets).abs()
        return counts(outputs.new_tensor(len(targets)), error.square().mean(1).sum(), error.mean(1).sum())
