"""A model's parameters as named tensors, and the few vector-space operations on them."""

from collections.abc import Mapping

from torch import Tensor

Params = Mapping[str, Tensor]
"""Name of a parameter to its tensor. Functions here never modify one: they return a new dict."""


def zeros(X: Params) -> dict[str, Tensor]:
    """The zero of the space that ``X`` lives in: same names, shapes, dtypes and devices."""
    return {w: x.new_zeros(x.shape) for w, x in X.items()}


def plus(A: Params, B: Params, scale: float = 1.0) -> dict[str, Tensor]:
    """``A + scale·B``, name by name."""
    return {w: a.add(B[w], alpha=scale) for w, a in A.items()}


def minus(A: Params, B: Params) -> dict[str, Tensor]:
    """``A - B``, name by name."""
    return {w: a - B[w] for w, a in A.items()}


def not_finite(A: Params) -> list[str]:
    """Names of the tensors that hold a NaN or an infinity (empty when all is well)."""
    return [w for w, a in A.items() if not a.isfinite().all()]
