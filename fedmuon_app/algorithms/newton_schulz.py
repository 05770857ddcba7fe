"""Algorithm 2: Newton-Schulz iterations, in the form that is quickest for a matrix's shape.

All functions take float[..., d1, d2], treat the last two dimensions as one matrix, modify nothing and
return that shape and dtype. None of them waits for a GPU.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedmuon_app.algorithms.precision import true_float32

Coefficients = tuple[float, float, float]

QUINTIC: Coefficients = (15 / 8, -5 / 4, 3 / 8)
"""Theorem 3's (a, b, c): x ↦ ax + bx³ + cx⁵ rises on [0, 1], stays ≥ x there, and has its fixed point at 1."""

LONG, SHORT = 3, 32  # the Gram form is for d1 × d2 with d2 ≥ LONG·d1 and d1 ≥ SHORT, or its transpose
FIRST, RESTART = 5, 3  # iterations on the first Gram matrix, and on each one after it


def newton_schulz(G: Tensor, T: int, coefficients: Coefficients = QUINTIC) -> Tensor:
    """Push the non-zero singular values of ``G`` towards 1 with ``T`` iterations (Algorithm 2).

    Args:
        G: float32, bfloat16 or float64; any scale that its dtype can hold.
        T: number of iterations, >= 0. T = 0 only divides by the Frobenius norm.
        coefficients: (a, b, c) of the step G ← aG + b(GGᵀ)G + c(GGᵀ)²G.

    Returns:
        Close to UVᵀ where G = UΣVᵀ. Algorithm 2 returns the negative: here the sign belongs to the oracle.

    Raises:
        ValueError: T < 0.

    In float32, T above 25 or so lifts the rounding noise of a rank-deficient matrix to singular values
    near 1; use :func:`fedmuon_app.algorithms.lmo.polar` there.
    """
    if T < 0:
        raise ValueError(f"T = {T}: the number of Newton-Schulz iterations must be >= 0")
    X = normalised(G.reshape(-1, *G.shape[-2:]))
    tall = X.shape[1] > X.shape[2]
    if tall:  # the transpose has the same singular values, and a smaller Gram matrix
        X = X.mT.contiguous()
    d1, d2 = X.shape[1:]
    form = plain if d1 < SHORT or d2 < LONG * d1 or X.dtype == torch.bfloat16 else gram
    with true_float32(X):
        X = form(X, T, coefficients)
    return (X.mT if tall else X).reshape(G.shape)


def plain(X: Tensor, T: int, coefficients: Coefficients = QUINTIC) -> Tensor:
    """T steps X ← aX + (bA + cA²)X with A = XXᵀ, for a stack float[k, d1, d2] of norms ≤ 1."""
    a, b, c = coefficients
    for _ in range(T):
        A = torch.bmm(X, X.mT)
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X


def gram(X: Tensor, T: int, coefficients: Coefficients = QUINTIC) -> Tensor:
    """The same on the small side: all steps of a segment become one factor qI + R, applied to X at its end.

    With S = bA + cA², a step multiplies X by aI + S, hence A by (aI + S)², hence qI + R by aI + S. The
    multiple of I is kept apart because it is exact: so small singular values meet no rounding noise of
    large entries. Where they are near 1 already, qI + R is 1 by cancellation from q = aᵏ: so segments after
    the first are short. The error is then within three times the plain loop's (docs/performance.md). Not
    for bfloat16, where it is lost on ill-conditioned input.
    """
    a, b, c = coefficients
    for steps in _segments(T):
        A = torch.bmm(X, X.mT)
        q, R = 1.0, A  # R = 0, if it were needed
        for k in range(steps):
            S = torch.baddbmm(A, A, A, beta=b, alpha=c)
            R = torch.baddbmm(R, S, R, beta=a).add_(S, alpha=q) if k else S
            q *= a
            if k < steps - 1:
                SA = torch.bmm(S, A)
                A = torch.baddbmm(torch.add(a * a * A, SA, alpha=2 * a), S, SA)
        X = torch.baddbmm(X, R, X, beta=q)
    return X


def normalised(G: Tensor) -> Tensor:
    """G/‖G‖_F, 0 where G = 0, at any scale.

    Divided by max|G| first, so that squaring neither underflows nor overflows. There is no additive ε:
    near a stationary point FedMuon's G goes to 0, and an ε would switch the step off there.
    """
    X = G.float() if G.dtype == torch.bfloat16 else G
    tiny = torch.finfo(X.dtype).tiny  # for G = 0
    X = X / X.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=tiny)
    rows = torch.linalg.vector_norm(X, dim=-1, keepdim=True)  # in one go, 512 × 4608 squares lose four digits
    return (X / torch.linalg.vector_norm(rows, dim=-2, keepdim=True).clamp(min=tiny)).to(G.dtype)


def _segments(T: int) -> Iterator[int]:
    """T in parts: FIRST, then RESTART each."""
    most = FIRST
    while T:
        yield min(most, T)
        T, most = T - min(most, T), RESTART
