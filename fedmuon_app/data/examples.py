"""Labelled images."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Indices = npt.NDArray[np.int64]


class StoredImages:
    """Images in a file, as if they were a tensor uint8[N, c, h, w]; what is asked for is read, and nothing else.

    By reads and not by a mapping, whose pages would count as this process's memory.
    """

    def __init__(self, file: int, shape: tuple[int, ...], rows: Indices | None = None) -> None:
        """Those of ``file``.

        Args:
            file: descriptor of an open file, which processes that are forked may share.
            shape: [N, c, h, w] of what is in it.
            rows: which of them, int64[n]; None: all.
        """
        self._file, self._one = file, torch.Size(shape[1:])
        self._rows = np.arange(shape[0]) if rows is None else rows

    @property
    def shape(self) -> torch.Size:
        """[N, c, h, w]."""
        return torch.Size((len(self._rows), *self._one))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """A new tensor of the images at a slice, or at int64[n]."""
        rows = self._rows[index if isinstance(index, slice) else index.cpu().numpy()]
        images = np.empty((len(rows), *self._one), np.uint8)
        size = self._one.numel()
        for row, image in zip(rows.tolist(), images, strict=True):
            if os.preadv(self._file, [image.data], row * size) != size:
                raise OSError(f"a file of decoded images has become shorter: image {row} is not there any more")
        return torch.from_numpy(images)

    def subset(self, indices: Indices) -> "StoredImages":
        """Those at ``indices``, without reading any."""
        return StoredImages(self._file, (0, *self._one), self._rows[indices])

    def to(self, device: torch.device) -> "StoredImages":
        """They stay where they are: only what is read goes to a device."""
        return self


@dataclass(frozen=True)
class Examples:
    """Labelled images.

    Attributes:
        images: uint8[N, c, h, w], in memory or in a file.
        labels: int64[N], in 0 … number of classes - 1.
    """

    images: Tensor | StoredImages
    labels: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.labels)

    def at(self, indices: Indices) -> "Batch":
        """The examples at ``indices``, int64[B], in that order, in memory."""
        index = torch.from_numpy(indices).to(self.labels.device)
        return Batch(self.images[index], self.labels[index])

    def part(self, part: slice) -> "Batch":
        """Those at a slice, in memory."""
        return Batch(self.images[part], self.labels[part])

    def subset(self, indices: Indices) -> "Examples":
        """The same, but what is in a file stays there."""
        if isinstance(self.images, Tensor):
            return self.at(indices)
        return Examples(self.images.subset(indices), self.labels[torch.from_numpy(indices)])

    def split(self, share: float, rng: np.random.Generator) -> tuple["Examples", "Examples"]:
        """All but a ``share`` of the examples, and that share: drawn by ``rng``, each in the order they had."""
        order = rng.permutation(len(self))
        cut = round(share * len(self))
        return self.subset(np.sort(order[cut:])), self.subset(np.sort(order[:cut]))

    def to(self, device: torch.device) -> "Examples":
        """The same on another device."""
        return Examples(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Batch(Examples):
    """Examples in memory."""

    images: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return Batch(self.images.to(device), self.labels.to(device))


def blank(like: Examples) -> Batch:
    """Two black images of the size of ``like``'s: for trying a model where there are none."""
    return Batch(torch.zeros(2, *like.images.shape[1:], dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))


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
