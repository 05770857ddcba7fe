"""Step rules: from the (corrected) momentum G to the downhill direction D of a run of parameters.

Every method then adds η·D, as the paper does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedmuon_app.algorithms.lmo import SCALES, lmo_euclidean, lmo_max, lmo_spectral
from fedmuon_app.algorithms.newton_schulz import QUINTIC, Coefficients, normalised
from fedmuon_app.algorithms.schedules import CONSTANT, Schedule


@dataclass(frozen=True)
class Hyper:
    """The numbers of a method.

    Attributes:
        lr: η of the matrices.
        vector_lr: η of every other parameter.
        alpha: α in (0, 1], the weight of the new gradient in the momentum (1 - momentum).
        heavy_ball: M ← (1-α)M + g, as torch.optim.SGD does, instead of Algorithm 1's (1-α)M + αg.
        keep_momentum: carry M (and Adam's second moment) from a client's round to its next one.
        norm: "spectral", "euclidean" or "max": the ball of the oracle.
        T: Newton-Schulz iterations of the spectral oracle, >= 0; None solves it exactly.
        coefficients: (a, b, c) of Newton-Schulz.
        bfloat16: iterate in bfloat16, at an error of about 1 %.
        scale: a key of :data:`fedmuon_app.algorithms.lmo.SCALES`.
        beta2: decay of Adam's second moment.
        eps: ε of Adam.
        schedule: what both step sizes are multiplied by in each round.
        weight_decay: λ: each step begins with X_i ← (1 - ηλ) X_i, with the η of the parameter, without the scale of its
            matrix (decoupled, as in torch.optim.Muon and AdamW).
        clip: the norm above which a gradient is scaled down to it, over all parameters; None: none.
        prox: μ of the proximal term (μ/2)‖X_i - X‖² that is added to each client's loss (Li et al. 2020, FedProx).
    """

    lr: float
    vector_lr: float
    alpha: float = 0.1
    heavy_ball: bool = False
    keep_momentum: bool = True
    norm: str = "spectral"
    T: int | None = 5
    coefficients: Coefficients = QUINTIC
    bfloat16: bool = False
    scale: str = "moonlight"
    beta2: float = 0.999
    eps: float = 1e-8
    schedule: Schedule = CONSTANT
    weight_decay: float = 0.0
    clip: float | None = None
    prox: float = 0.0

    def at(self, r: int) -> "Hyper":
        """The numbers of round ``r``."""
        factor = self.schedule(r)
        return self if factor == 1 else replace(self, lr=factor * self.lr, vector_lr=factor * self.vector_lr)


@dataclass(frozen=True)
class Moments:
    """What Adam knows beside G: the second moment v, and the count t >= 1 of steps (an int, or a scalar tensor)."""

    v: Tensor
    t: int | Tensor


StepRule = Callable[[Tensor, Sequence[torch.Size], Moments | None, Hyper], Tensor]
"""(G, shapes, moments, numbers) ↦ D: G and D are float[d], the parameters of those shapes one after the other."""


def descent(G: Tensor, shapes: Sequence[torch.Size], moments: Moments | None, hp: Hyper) -> Tensor:
    """-G: gradient descent on the momentum."""
    return -G


def adam(G: Tensor, shapes: Sequence[torch.Size], moments: Moments | None, hp: Hyper) -> Tensor:
    """-m̂/(√v̂ + ε) with m̂ = G/(1-(1-α)ᵗ) and v̂ = v/(1-β₂ᵗ) (Kingma and Ba 2015, algorithm 1).

    A heavy ball's weights add up to (1-(1-α)ᵗ)/α, so its m̂ is G by that: the steps are the same in both forms.
    """
    assert moments is not None
    m_hat = G / ((1 - (1 - hp.alpha) ** moments.t) / (hp.alpha if hp.heavy_ball else 1.0))
    v_hat = moments.v / (1 - hp.beta2**moments.t)
    return -m_hat / (v_hat.sqrt() + hp.eps)


def muon(G: Tensor, shapes: Sequence[torch.Size], moments: Moments | None, hp: Hyper) -> Tensor:
    """scale(d1, d2)·lmo(G), where a tensor of d1 × … is the matrix of d1 rows (section 2 of the paper).

    Matrices of the same shape go through the oracle as one stack: on a GPU, whose time is in launches.
    """
    parts = torch.split(G, [shape.numel() for shape in shapes])
    matrices = [part.view(shape[0], -1) for part, shape in zip(parts, shapes, strict=True)]
    D, lmo = [G] * len(shapes), lmo_of(hp)
    for d1, d2 in dict.fromkeys((A.shape[0], A.shape[1]) for A in matrices):
        same = [i for i, A in enumerate(matrices) if A.shape == (d1, d2)]
        stack = lmo(torch.stack([matrices[i] for i in same])) * SCALES[hp.scale](d1, d2)
        for i, step in zip(same, stack.unbind(), strict=True):
            D[i] = step.reshape(-1)
    return torch.cat(D) if D else G


def lmo_of(hp: Hyper) -> Callable[[Tensor], Tensor]:
    """The oracle that ``hp`` describes, for float[..., d1, d2]."""
    if hp.norm != "spectral":
        return {"euclidean": lmo_euclidean, "max": lmo_max}[hp.norm]
    if hp.bfloat16:
        return lambda G: lmo_spectral(normalised(G).bfloat16(), hp.T, hp.coefficients).to(G.dtype)
    return lambda G: lmo_spectral(G, hp.T, hp.coefficients)
