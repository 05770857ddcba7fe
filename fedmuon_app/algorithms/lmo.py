"""Linear minimisation oracles of three norms, for stacks of matrices.

lmo(G) = argmin {⟨G, D⟩ : ‖D‖ ≤ 1}; section 2 of the paper. Every oracle takes float[..., d1, d2],
treats the last two dimensions as one matrix, does not modify it, and returns a new tensor of its
shape and dtype. lmo(0) = 0, which is one of the minimisers. A NaN or an infinity in a matrix comes out
as NaN in that matrix: :func:`fedmuon_app.algorithms.client.local_round` refuses such input by name.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Coefficients = tuple[float, float, float]

QUINTIC: Coefficients = (15 / 8, -5 / 4, 3 / 8)
"""Theorem 3's (a, b, c): x ↦ ax + bx³ + cx⁵ rises on [0, 1], stays ≥ x there, and has its fixed point at 1."""


def newton_schulz(G: Tensor, T: int, coefficients: Coefficients = QUINTIC) -> Tensor:
    """Push the non-zero singular values of ``G`` towards 1 with ``T`` iterations (Algorithm 2).

    Args:
        G: float[..., d1, d2], float32, bfloat16 or float64; any scale that its dtype can hold.
        T: number of iterations, >= 0. T = 0 only divides by the Frobenius norm.
        coefficients: (a, b, c) of the step G ← aG + b(GGᵀ)G + c(GGᵀ)²G.

    Returns:
        float[..., d1, d2]; close to UVᵀ where G = UΣVᵀ. Algorithm 2 returns the negative: here the
        sign belongs to the oracle.

    Raises:
        ValueError: T < 0.

    In float32, T above 25 or so lifts the rounding noise of a rank-deficient matrix to singular values
    near 1; use :func:`polar` there.
    """
    if T < 0:
        raise ValueError(f"T = {T}: the number of Newton-Schulz iterations must be >= 0")
    a, b, c = coefficients
    X = _normalised(G)
    tall = X.shape[-2] > X.shape[-1]
    if tall:  # iterate on the smaller Gram matrix; the transpose has the same singular values
        X = X.mT
    for _ in range(T):
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT.contiguous() if tall else X


def polar(G: Tensor) -> Tensor:
    """UVᵀ of the singular value decomposition G = UΣVᵀ, over the singular values that are not noise.

    Those up to max(d1, d2)·eps·s_max are rounding noise and are cut: the gradient of a softmax head has
    rank < classes, and an uncut UVᵀ would put a full unit of its mass on that noise. bfloat16 is
    decomposed in float32.
    """
    X = _normalised(G if G.dtype == torch.float64 else G.float())
    U, s, Vh = torch.linalg.svd(X, full_matrices=False)
    cut = max(X.shape[-2:]) * torch.finfo(X.dtype).eps * s[..., :1]
    return ((U * (s > cut).unsqueeze(-2)) @ Vh).to(G.dtype)


def lmo_spectral(G: Tensor, T: int | None, coefficients: Coefficients = QUINTIC) -> Tensor:
    """-UVᵀ: Muon's oracle, by ``T`` Newton-Schulz iterations, or exactly with T = None."""
    return -(polar(G) if T is None else newton_schulz(G, T, coefficients))


def lmo_euclidean(G: Tensor) -> Tensor:
    """-G/‖G‖_F: normalised SGD."""
    return -_normalised(G)


def lmo_max(G: Tensor) -> Tensor:
    """-sign(G): sign SGD."""
    return -G.sign()


SCALES: dict[str, Callable[[int, int], float]] = {
    "moonlight": lambda d1, d2: 0.2 * math.sqrt(max(d1, d2)),  # Liu et al. 2025, which the paper follows
    "jordan": lambda d1, d2: math.sqrt(max(1.0, d1 / d2)),  # Jordan et al. 2024
    "ratio": lambda d1, d2: math.sqrt(d1 / d2),  # Pethick et al. 2025, RMS to RMS operator norm
    "one": lambda d1, d2: 1.0,
}
"""Factor of the step size of a d1 × d2 matrix."""


def _normalised(G: Tensor) -> Tensor:
    """G/‖G‖_F, 0 where G = 0, at any scale.

    Divided by max|G| first, so that squaring neither underflows nor overflows. There is no additive ε:
    near a stationary point FedMuon's G goes to 0, and an ε would switch the step off there.
    """
    X = G.float() if G.dtype == torch.bfloat16 else G
    largest = X.abs().amax(dim=(-2, -1), keepdim=True)
    X = X / torch.where(largest == 0, 1, largest)
    norm = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    return (X / torch.where(norm == 0, 1, norm)).to(G.dtype)
