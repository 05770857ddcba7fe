"""A small convolutional network with group normalisation, for colour images on a CPU."""

from collections.abc import Sequence

from torch import nn


class CNN(nn.Sequential):
    """3×3 convolution, GroupNorm, ReLU and 2×2 max pooling for each width; the mean over the image; a linear head."""

    def __init__(
        self, num_classes: int = 10, in_channels: int = 3, widths: Sequence[int] = (32, 64, 64), groups: int = 8
    ) -> None:
        """Build it.

        Args:
            num_classes: width of the head.
            in_channels: of the images, which must be 2^len(widths) pixels a side or more.
            widths: channels after each convolution.
            groups: of every GroupNorm (Wu and He 2018).
        """
        layers: list[nn.Module] = []
        for width in widths:
            conv = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
            layers += [conv, nn.GroupNorm(groups, width), nn.ReLU(), nn.MaxPool2d(2)]
            in_channels = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, num_classes))
