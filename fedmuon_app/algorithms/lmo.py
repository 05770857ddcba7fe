"""Linear minimisation oracles of three norms, for stacks of matrices.

lmo(G) = argmin {⟨G, D⟩ : ‖D‖ ≤ 1}; section 2 of the paper. Every oracle takes float[..., d1, d2],
treats the last two dimensions as one matrix, does not modify it, and returns a new tensor of its
shape and dtype. lmo(0) = 0, which is one of the minimisers. What is not finite in a matrix does not come
out finite: :func:`fedmuon_app.algorithms.client.local_round` refuses infinite input by name.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedmuon_app.algorithms.newton_schulz import QUINTIC, Coefficients, newton_schulz, normalised


def polar(G: Tensor) -> Tensor:
    """UVᵀ of the singular value decomposition G = UΣVᵀ, over the singular values that are not noise.

    Those up to max(d1, d2)·eps·s_max are rounding noise and are cut: the gradient of a softmax head has
    rank < classes, and an uncut UVᵀ would put a full unit of its mass on that noise. bfloat16 is
    decomposed in float32.
    """
    X = normalised(G if G.dtype == torch.float64 else G.float())
    finite = X.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    U, s, Vh = torch.linalg.svd(torch.where(finite, X, 0), full_matrices=False)
    cut = max(X.shape[-2:]) * torch.finfo(X.dtype).eps * s[..., :1]
    return torch.where(finite, (U * (s > cut).unsqueeze(-2)) @ Vh, torch.nan).to(G.dtype)


def lmo_spectral(G: Tensor, T: int | None, coefficients: Coefficients = QUINTIC) -> Tensor:
    """-UVᵀ: Muon's oracle, by ``T`` Newton-Schulz iterations, or exactly with T = None."""
    return -(polar(G) if T is None else newton_schulz(G, T, coefficients))


def lmo_euclidean(G: Tensor) -> Tensor:
    """-G/‖G‖_F: normalised SGD."""
    return -normalised(G)


def lmo_max(G: Tensor) -> Tensor:
    """-sign(G): sign SGD."""
    return torch.where(G.isfinite(), -G.sign(), torch.nan)


SCALES: dict[str, Callable[[int, int], float]] = {
    "moonlight": lambda d1, d2: 0.2 * math.sqrt(max(d1, d2)),  # Liu et al. 2025, which the paper follows
    "jordan": lambda d1, d2: math.sqrt(max(1.0, d1 / d2)),  # Jordan et al. 2024
    "ratio": lambda d1, d2: math.sqrt(d1 / d2),  # Pethick et al. 2025, RMS to RMS operator norm
    "one": lambda d1, d2: 1.0,
}
"""Factor of the step size of a d1 × d2 matrix."""
