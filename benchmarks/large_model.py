"""A model of ResNet-18's size that computes next to nothing: for the cost of records and states alone."""

import torch
from torch import Tensor, nn

SIDE = 3342  # squared, ResNet-18's 11.17 million


class Large(nn.Module):
    """Ten scores from ten pixels, and a matrix that is only carried."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIDE, SIDE))

    def forward(self, x: Tensor) -> Tensor:
        """float[B, …] to float[B, 10]."""
        return x.flatten(1)[:, :10] + self.weight[0, :10]
