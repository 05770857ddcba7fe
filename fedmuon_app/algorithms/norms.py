"""Theorem 3's norm: Schatten's ‖·‖_p with the p that T Newton-Schulz iterations reach."""

import math

import torch
from torch import Tensor


def exponent(kappa: float, T: int, rate: float = 1.5) -> float:
    """P of Theorem 3, 1 + log(1 - (1 - κ)^(rate^T)) / log κ.

    Where κ = 1 (rank one) its limit: 1 for T ≥ 1 and 2 for T = 0.

    Args:
        kappa: κ in (0, 1], the smallest s_j/‖G‖_F.
        T: iterations.
        rate: the theorem's 1.5; with 15/8 the inequality still holds, and then is tight.
    """
    if kappa >= 1:
        return 1.0 if T else 2.0
    return 1 + math.log(-math.expm1(rate**T * math.log1p(-kappa))) / math.log(kappa)


def schatten(G: Tensor, p: float) -> Tensor:
    """‖G‖_p of the singular values, float[...] of float[..., d1, d2]; 1: the trace norm, 2: Frobenius'."""
    s: Tensor = torch.linalg.svdvals(G)
    return (s**p).sum(-1) ** (1 / p)


def theorem_norm(G: Tensor, T: int | None) -> Tensor:
    """‖G‖_p with Theorem 3's p for the κ of one matrix ``G`` itself; None: the exact oracle, p = 1.

    κ is taken over the singular values that are not rounding noise, as in :func:`fedmuon_app.algorithms.lmo.polar`.
    """
    s: Tensor = torch.linalg.svdvals(G)
    kept = s[s > max(G.shape[-2:]) * torch.finfo(G.dtype).eps * s[0]]
    if not len(kept):
        return s.new_zeros(())
    unit = kept / kept[0]  # so that no power or square overflows
    p = 1.0 if T is None else exponent(float(unit[-1] / torch.linalg.vector_norm(unit)), T)
    return kept[0] * (unit**p).sum() ** (1 / p)
