"""LeNet-5 (LeCun et al. 1998), with ReLU and max pooling."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """5×5 convolutions of 6 and 16 channels, then 120, 84 and ``num_classes``.

    Two things are for speed and change no number. Pooling comes before ReLU: the maximum commutes with it,
    and ReLU then has a quarter of the work. And the 6 channels are computed as 8, two of them zero: a
    processor pools eight channels at once, but six one by one.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        size: int | Sequence[int] = 28,
        padding: int = 2,
        group_norm: bool = False,
    ) -> None:
        """Build the layers.

        Args:
            num_classes: width of the last layer.
            in_channels: 1 for grey images.
            size: pixels a side, or height and width.
            padding: of the first convolution; 2 keeps 28×28 (400 features), 0 is the paper's family of
                code (256 features).
            group_norm: GroupNorm(2, 6) and GroupNorm(4, 16) after the pools, as in that family.

        Raises:
            ValueError: nothing is left of images of that size after the second pool.
        """
        super().__init__()
        height, width = ((pixels + 2 * padding - 4) // 2 - 4 for pixels in _two(size))
        if min(height, width) < 2:
            raise ValueError(f"size = {size}: LeNet needs at least {16 - 2 * padding} pixels a side")
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=padding)
        self.norm1 = nn.GroupNorm(2, 6) if group_norm else nn.Identity()
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.norm2 = nn.GroupNorm(4, 16) if group_norm else nn.Identity()
        self.fc1 = nn.Linear(16 * (height // 2) * (width // 2), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """float[B, in_channels, height, width] to scores float[B, num_classes]."""
        x = F.conv2d(x, _padded(self.conv1.weight, 0), _padded(self.conv1.bias, 0), padding=self.conv1.padding)
        x = F.relu(F.max_pool2d(x, 2))
        if isinstance(self.norm1, nn.GroupNorm):
            x = _padded(self.norm1(x[:, :6]), 1)
        x = F.conv2d(x, _padded(self.conv2.weight, 1), self.conv2.bias)
        x = self.norm2(F.relu(F.max_pool2d(x, 2)))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        scores: Tensor = self.fc3(F.relu(self.fc2(x)))
        return scores


def _two(size: int | Sequence[int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def _padded(x: Tensor | None, dimension: int) -> Tensor:
    """``x`` with two more zeros along a dimension."""
    assert x is not None
    return F.pad(x, (0, 0) * (x.ndim - 1 - dimension) + (0, 2))
