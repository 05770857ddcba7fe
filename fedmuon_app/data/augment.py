"""Random crops and flips of a whole minibatch, drawn from a generator that the caller seeds."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

AUGMENTATIONS = ("none", "crop", "crop_flip")


def augment(images: Tensor, kind: str, rng: np.random.Generator, padding: int = 4) -> Tensor:
    """Shift each image by up to ``padding`` pixels on a black ground; with crop_flip, mirror half of them.

    Args:
        images: uint8[B, c, h, w]; not modified.
        kind: one of AUGMENTATIONS.
        rng: what decides the draws.
        padding: in pixels.

    Returns:
        uint8[B, c, h, w].
    """
    if kind == "none":
        return images
    B, _, h, w = images.shape
    top, left = rng.integers(0, 2 * padding + 1, size=(2, B))
    rows = torch.from_numpy(top[:, None] + np.arange(h)).to(images.device)
    columns = left[:, None] + np.arange(w)
    if kind == "crop_flip":
        columns = np.where(rng.random(B)[:, None] < 0.5, columns[:, ::-1], columns)
    cols = torch.from_numpy(columns).to(images.device)
    padded = F.pad(images, (padding, padding, padding, padding))
    batch = torch.arange(B, device=images.device)
    # indices of shape [B, h, w] around the channel's slice give [B, h, w, c]
    return padded[batch[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2).contiguous()
