"""A multi-layer perceptron, for tables."""

from collections.abc import Sequence

from torch import nn


class MLP(nn.Sequential):
    """A linear layer and ReLU for each width, and a linear head; inputs of more dimensions are flattened."""

    def __init__(self, num_classes: int, in_features: int, widths: Sequence[int] = (64, 64)) -> None:
        """Build it.

        Args:
            num_classes: width of the head: classes, or quantities.
            in_features: numbers of an input.
            widths: of the hidden layers.
        """
        layers: list[nn.Module] = [nn.Flatten()]
        for width in widths:
            layers += [nn.Linear(in_features, width), nn.ReLU()]
            in_features = width
        super().__init__(*layers, nn.Linear(in_features, num_classes))
