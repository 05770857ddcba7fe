"""What is learned: a loss, what is measured beside it, and how raw examples become a model's inputs."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor


class Task(Protocol):
    """A loss and metrics over (a model's outputs, targets)."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what is measured; by the first one it is decided which X is best. ``loss`` is among them."""

    def shape(self, targets: Tensor, outputs: int) -> tuple[int, ...]:
        """The shape that a model's outputs must have for these targets, where the data has so many ``outputs``."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, float[B]."""

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What :meth:`measured` needs of a batch, float64[…]: it is added up over batches."""

    def measured(self, sums: Tensor) -> Mapping[str, float]:
        """``metrics`` from the sums over all examples."""


class ByExample:
    """The part of a :class:`Task` whose outputs are a row an example, and whose metrics are means over examples."""

    metrics: tuple[str, ...]

    def shape(self, targets: Tensor, outputs: int) -> tuple[int, ...]:
        """See :class:`Task`."""
        return len(targets), outputs

    def measured(self, sums: Tensor) -> Mapping[str, float]:
        """From how many examples there are, and a sum for each of ``metrics``."""
        count, *totals = sums.tolist()
        return {name: total / count for name, total in zip(self.metrics, totals, strict=True)}


def counts(*numbers: Tensor) -> Tensor:
    """Scalars as one float64 vector."""
    return torch.stack([number.double() for number in numbers])
