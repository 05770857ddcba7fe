"""From raw examples to what a model is called with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmuon_app.data.augment import augment
from fedmuon_app.data.examples import Batch, Data, first, mapped


class Plain:
    """Numbers as they are: floats in the model's dtype, whole numbers (tokens) as int64."""

    augments = False

    def __init__(self, dtype: torch.dtype) -> None:
        """Set the dtype of floats."""
        self._dtype = dtype

    def __call__(self, raw: Any) -> Any:
        """The inputs of a batch, or of one that is shaped like its."""
        return mapped(lambda x: x.to(self._dtype) if x.is_floating_point() else x.long(), raw)

    def augmented(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The batch itself."""
        return batch


class Pixels:
    """Images uint8[B, c, h, w], scaled to (x/255 - mean)/std per channel, channels last in memory."""

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], augmentation: str, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Set the scaling.

        Args:
            mean: per channel, of pixels in [0, 1].
            std: the standard deviation of each channel.
            augmentation: one of :data:`fedmuon_app.data.augment.AUGMENTATIONS`.
            dtype: of the result.
            device: where the inputs are needed.
        """
        self._kind, self.augments, self._dtype, self._device = augmentation, augmentation != "none", dtype, device
        self._mean, self._std = (torch.tensor(x, device=device).view(1, -1, 1, 1) * 255 for x in (mean, std))

    def __call__(self, raw: Any) -> Tensor:
        """The scaled pixels.

        Into a tensor made that way, because ``contiguous`` takes a single channel for last already, and
        its strides then send the convolutions down the slower path (benchmarks/layout.py).
        """
        scaled: Tensor = (raw.float() - self._mean) / self._std
        ready = torch.empty(scaled.shape, dtype=self._dtype, device=self._device, memory_format=torch.channels_last)
        return ready.copy_(scaled)

    def augmented(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """Shifted and mirrored, as ``rng`` draws it."""
        assert isinstance(batch.inputs, Tensor)
        return Batch(augment(batch.inputs, self._kind, rng), batch.targets)


def inputs_of(data: Data, augmentation: str, dtype: torch.dtype, device: torch.device) -> Plain | Pixels:
    """What suits the examples: bytes of four dimensions are images."""
    x = first(data.train.inputs)
    if data.mean and x.dtype == torch.uint8 and len(x.shape) == 4:
        return Pixels(data.mean, data.std, augmentation, dtype, device)
    return Plain(dtype)
