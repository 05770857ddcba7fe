"""Examples: inputs of any kind, and their targets."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

    @property
    def dtype(self) -> torch.dtype:
        """Bytes."""
        return torch.uint8

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


Inputs = Tensor | StoredImages | tuple[Tensor, ...] | dict[str, Tensor]
"""What a model is called with: one tensor, or several as its arguments or by name; along the first dimension N."""


def mapped(f: Callable[[Any], Any], x: Any) -> Any:
    """``f`` of a tensor, or of each tensor of a tuple or a dict."""
    if isinstance(x, tuple):
        return tuple(f(part) for part in x)
    return {name: f(part) for name, part in x.items()} if isinstance(x, dict) else f(x)


def together(f: Callable[[list[Any]], Tensor], many: Sequence[Any]) -> Any:
    """``f`` of the tensors of many inputs that are alike; of tuples and dicts, part by part."""
    one = many[0]
    if isinstance(one, tuple):
        return tuple(f([x[k] for x in many]) for k in range(len(one)))
    return {name: f([x[name] for x in many]) for name in one} if isinstance(one, dict) else f(list(many))


def first(x: Inputs) -> Tensor | StoredImages:
    """The tensor itself, or the first of several."""
    return next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x


@dataclass(frozen=True)
class Examples:
    """Inputs with what is to be made of them.

    Attributes:
        inputs: N of them; images uint8[N, c, h, w] may be in a file.
        targets: of N; int64[N] in 0 … number of classes - 1 for a classification.
    """

    inputs: Inputs
    targets: Tensor

    def __len__(self) -> int:
        """N."""
        return len(self.targets)

    @property
    def shape(self) -> torch.Size:
        """Of one input, of the first tensor where it has several."""
        return first(self.inputs).shape[1:]

    def at(self, indices: Indices) -> "Batch":
        """The examples at ``indices``, int64[B], in that order, in memory."""
        index = torch.from_numpy(indices).to(self.targets.device)
        return Batch(mapped(lambda x: x[index], self.inputs), self.targets[index])

    def part(self, part: slice) -> "Batch":
        """Those at a slice, in memory."""
        return Batch(mapped(lambda x: x[part], self.inputs), self.targets[part])

    def subset(self, indices: Indices) -> "Examples":
        """The same, but what is in a file stays there."""
        if isinstance(self.inputs, StoredImages):
            return Examples(self.inputs.subset(indices), self.targets[torch.from_numpy(indices)])
        return self.at(indices)

    def to(self, device: torch.device) -> "Examples":
        """The same on another device."""
        return Examples(mapped(lambda x: x.to(device), self.inputs), self.targets.to(device))


@dataclass(frozen=True)
class Batch(Examples):
    """Examples in memory."""

    inputs: Tensor | tuple[Tensor, ...] | dict[str, Tensor]

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return Batch(mapped(lambda x: x.to(device), self.inputs), self.targets.to(device))

    def pieces(self, sizes: Sequence[int]) -> "list[Batch]":
        """Batches of these sizes, one after the other."""
        ends = np.cumsum(sizes).tolist()
        return [self.part(slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def held_out(count: int, share: float, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Indices of all but a ``share`` of ``count`` examples, and of that share: drawn by ``rng``, each in order."""
    order, cut = rng.permutation(count), round(share * count)
    return np.sort(order[cut:]), np.sort(order[:cut])


def joined(parts: Sequence[Examples]) -> Examples:
    """All of them, at least one, in one, in memory.

    Raises:
        RuntimeError: they are not alike.
    """
    whole = [part.at(np.arange(len(part))) for part in parts]
    return Batch(together(torch.cat, [part.inputs for part in whole]), torch.cat([part.targets for part in whole]))


def blank(like: Examples) -> Batch:
    """Two examples of nothing but zeros, in the shapes of ``like``'s: for trying a model where there are none."""

    def zeros(x: Tensor | StoredImages) -> Tensor:
        return torch.zeros(2, *x.shape[1:], dtype=x.dtype)

    return Batch(mapped(zeros, like.inputs), zeros(like.targets))


@dataclass(frozen=True)
class Data:
    """A data set: what is trained on, and what is tested on.

    Attributes:
        train: the examples of all clients together.
        test: the examples of the server's evaluation.
        classes: names of what a model has an output for: classes in the order of the labels, characters, or quantities.
        mean: per channel of images, of pixels in [0, 1]; empty: these are none.
        std: the standard deviation of each channel, > 0.
        columns: of the training examples what they can be dealt by, N words a column (partition=column).
    """

    train: Examples
    test: Examples
    classes: Sequence[str]
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
