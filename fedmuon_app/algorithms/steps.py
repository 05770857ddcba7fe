"""Step rules: from the (corrected) momentum G of one parameter to its downhill direction D.

Every method then adds η·D, as the paper does.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.algorithms.lmo import (
    QUINTIC,
    SCALES,
    Coefficients,
    lmo_euclidean,
    lmo_max,
    lmo_spectral,
)


@dataclass(frozen=True)
class Hyper:
    """The numbers of a method.

    Attributes:
        lr: η of the matrices (parameters with two or more dimensions).
        vector_lr: η of every other parameter.
        alpha: α in (0, 1], the weight of the new gradient in the momentum (1 - momentum).
        heavy_ball: M ← (1-α)M + g, as torch.optim.SGD does, instead of Algorithm 1's (1-α)M + αg.
        keep_momentum: carry M (and Adam's second moment) from a client's round to its next one.
        norm: "spectral", "euclidean" or "max": the ball of the oracle.
        T: Newton-Schulz iterations of the spectral oracle, >= 0; None solves it exactly.
        coefficients: (a, b, c) of Newton-Schulz.
        scale: a key of :data:`fedmuon_app.algorithms.lmo.SCALES`.
        exclude: names of matrices that take the vectors' rule and step size all the same.
        beta2: decay of Adam's second moment.
        eps: ε of Adam.
    """

    lr: float
    vector_lr: float
    alpha: float = 0.1
    heavy_ball: bool = False
    keep_momentum: bool = True
    norm: str = "spectral"
    T: int | None = 5
    coefficients: Coefficients = QUINTIC
    scale: str = "moonlight"
    exclude: frozenset[str] = frozenset()
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True)
class Moments:
    """What Adam knows of one parameter beside G: the second moment v, and the count t >= 1 of steps."""

    v: Tensor
    t: int


StepRule = Callable[[Tensor, Moments | None, Hyper], Tensor]


def descent(G: Tensor, moments: Moments | None, hp: Hyper) -> Tensor:
    """-G: gradient descent on the momentum."""
    return -G


def adam(G: Tensor, moments: Moments | None, hp: Hyper) -> Tensor:
    """-m̂/(√v̂ + ε) with m̂ = G/(1-(1-α)ᵗ) and v̂ = v/(1-β₂ᵗ) (Kingma and Ba 2015, algorithm 1)."""
    assert moments is not None
    m_hat = G / (1 - (1 - hp.alpha) ** moments.t)
    v_hat = moments.v / (1 - hp.beta2**moments.t)
    return -m_hat / (v_hat.sqrt() + hp.eps)


def muon(G: Tensor, moments: Moments | None, hp: Hyper) -> Tensor:
    """scale(d1, d2)·lmo(G), where a tensor of d1 × … is the matrix of d1 rows (section 2 of the paper)."""
    matrix = G.reshape(G.shape[0], -1)
    if hp.norm == "spectral":
        D = lmo_spectral(matrix, hp.T, hp.coefficients)
    else:
        D = {"euclidean": lmo_euclidean, "max": lmo_max}[hp.norm](matrix)
    return SCALES[hp.scale](*matrix.shape) * D.reshape(G.shape)


def is_matrix(name: str, x: Tensor, hp: Hyper) -> bool:
    """Whether parameter ``name`` takes the method's own rule with ``hp.lr`` (else the vectors')."""
    return x.ndim >= 2 and name not in hp.exclude
