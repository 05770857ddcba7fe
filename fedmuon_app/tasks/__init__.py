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


def mean_of_each(values: Tensor) -> Tensor:
    """The mean over all but the first dimension: float[B]."""
    return values.flatten(1).mean(1) if values.ndim > 1 else values


def counts(*numbers: Tensor) -> Tensor:
    """Scalars as one float64 vector."""
    return torch.stack([number.double() for number in numbers])
