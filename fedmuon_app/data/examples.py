"""Labelled images in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """Labelled images.

    Attributes:
        images: uint8[N, c, h, w].
        labels: int64[N], in 0 … number of classes - 1.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.labels)

    def at(self, indices: Indices) -> "Examples":
        """The examples at ``indices``, int64[B], in that order."""
        index = torch.from_numpy(indices).to(self.labels.device)
        return Examples(self.images[index], self.labels[index])

    def split(self, share: float, rng: np.random.Generator) -> tuple["Examples", "Examples"]:
        """All but a ``share`` of the examples, and that share: drawn by ``rng``, each in the order they had."""
        order = rng.permutation(len(self))
        cut = round(share * len(self))
        return self.at(np.sort(order[cut:])), self.at(np.sort(order[:cut]))

    def to(self, device: torch.device) -> "Examples":
        """The same on another device."""
        return Examples(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class ImageData:
    """A data set: what is trained on, what is tested on, and how its pixels are scaled.

    Attributes:
        train: the examples of all clients together.
        test: the examples of the server's evaluation.
        classes: names of the classes, in the order of the labels.
        mean: per channel, of pixels in [0, 1].
        std: per channel, > 0.
    """

    train: Examples
    test: Examples
    classes: Sequence[str]
    mean: Sequence[float]
    std: Sequence[float]
