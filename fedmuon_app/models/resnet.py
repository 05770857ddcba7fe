"""ResNet-18 for 32×32 images: torchvision's, with group normalisation and a small stem."""

import functools

from torch import nn
from torchvision.models import ResNet, resnet18


def resnet18_gn(num_classes: int = 10, in_channels: int = 3, groups: int = 8) -> ResNet:
    """ResNet-18 (He et al. 2016) with a 3×3 stem of stride 1, no max pooling, and GroupNorm for BatchNorm.

    Args:
        num_classes: width of the last layer.
        in_channels: 3 for colour images.
        groups: of every GroupNorm (Wu and He 2018); the paper's family of code has 8.

    Returns:
        A module from float[B, in_channels, 32, 32] to scores float[B, num_classes]; 11.17 M parameters.
    """
    model = resnet18(num_classes=num_classes, norm_layer=functools.partial(nn.GroupNorm, groups))
    model.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model
