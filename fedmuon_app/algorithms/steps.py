"""Step rules: from the (corrected) momentum G to the downhill direction D of a run of parameters.

A rule is a frozen dataclass of its numbers, with the sizes of the vectors that a client keeps for it (its slots), and
one pure function. Every method adds η·D, as the paper does. A rule of your own is a class with these two methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedmuon_app.algorithms.lmo import SCALES, lmo_euclidean, lmo_max, lmo_spectral
from fedmuon_app.algorithms.newton_schulz import QUINTIC, Coefficients, normalised

Shapes = Sequence[torch.Size]
Slots = Mapping[str, Tensor]
Oracle = Callable[[Tensor], Tensor]
"""float[..., d1, d2] ↦ argmin {⟨G, D⟩ : ‖D‖ ≤ 1}, of the same shape, for each of the matrices."""


class StepRule(Protocol):
    """What every step rule has."""

    def slots(self, shapes: Shapes) -> Mapping[str, int]:
        """Name and number of floats of what a client keeps for parameters of these shapes; zeros at first."""

    def __call__(
        self, G: Tensor, g: Tensor, X_i: Tensor, kept: Slots, t: int | Tensor, shapes: Shapes
    ) -> tuple[Tensor, Slots]:
        """The direction D, and what is kept from now on. Pure, and without a look at any value.

        Args:
            G: float[d], the momentum, corrected where the method corrects it: parameters of ``shapes`` in a row.
            g: float[d], the minibatch's gradient, corrected if the method has any correction.
            X_i: float[d], the parameters themselves.
            kept: the slots.
            t: how many steps the momentum holds, from 1 on (an int, or a scalar tensor).
            shapes: of the parameters.
        """


@dataclass(frozen=True)
class Sgd:
    """-G: gradient descent on the momentum."""

    def slots(self, shapes: Shapes) -> Mapping[str, int]:
        """None."""
        return {}

    def __call__(
        self, G: Tensor, g: Tensor, X_i: Tensor, kept: Slots, t: int | Tensor, shapes: Shapes
    ) -> tuple[Tensor, Slots]:
        """See :class:`StepRule`."""
        return -G, kept


@dataclass(frozen=True)
class Adam:
    """-m̂/(√v̂ + ε) with m̂ = G/(1-(1-α)ᵗ) and v̂ = v/(1-β₂ᵗ) (Kingma and Ba 2015, algorithm 1).

    A heavy ball's weights add up to (1-(1-α)ᵗ)/α, so its m̂ is G by that: the steps are the same in both forms.

    Attributes:
        alpha: α of the momentum that G is.
        heavy_ball: whether that is a heavy ball.
        beta2: decay of the second moment v.
        eps: ε.
    """

    alpha: float = 0.1
    heavy_ball: bool = False
    beta2: float = 0.999
    eps: float = 1e-8

    def slots(self, shapes: Shapes) -> Mapping[str, int]:
        """The second moment v."""
        return {"v": sum(shape.numel() for shape in shapes)}

    def __call__(
        self, G: Tensor, g: Tensor, X_i: Tensor, kept: Slots, t: int | Tensor, shapes: Shapes
    ) -> tuple[Tensor, Slots]:
        """See :class:`StepRule`."""
        v = (self.beta2 * kept["v"]).add_(g * g, alpha=1 - self.beta2)
        m_hat = G / ((1 - (1 - self.alpha) ** t) / (self.alpha if self.heavy_ball else 1.0))
        v_hat = v / (1 - self.beta2**t)
        return -m_hat / (v_hat.sqrt() + self.eps), {"v": v}


@dataclass(frozen=True)
class Muon:
    """scale(d1, d2)·lmo(G), where a tensor of d1 × … is the matrix of d1 rows (section 2 of the paper).

    Matrices of the same shape go through the oracle as one stack: on a GPU, whose time is in launches.

    Attributes:
        norm: "spectral", "euclidean" or "max": the ball of the oracle; or an oracle.
        T: Newton-Schulz iterations of the spectral oracle, >= 0; None solves it exactly.
        coefficients: (a, b, c) of Newton-Schulz.
        bfloat16: iterate in bfloat16, at an error of about 1 %.
        scale: a key of :data:`fedmuon_app.algorithms.lmo.SCALES`.
    """

    norm: str | Oracle = "spectral"
    T: int | None = 5
    coefficients: Coefficients = QUINTIC
    bfloat16: bool = False
    scale: str = "moonlight"

    def slots(self, shapes: Shapes) -> Mapping[str, int]:
        """None."""
        return {}

    def __call__(
        self, G: Tensor, g: Tensor, X_i: Tensor, kept: Slots, t: int | Tensor, shapes: Shapes
    ) -> tuple[Tensor, Slots]:
        """See :class:`StepRule`."""
        parts = torch.split(G, [shape.numel() for shape in shapes])
        matrices = [part.view(shape[0], -1) for part, shape in zip(parts, shapes, strict=True)]
        D = [G] * len(shapes)
        for d1, d2 in dict.fromkeys((A.shape[0], A.shape[1]) for A in matrices):
            same = [i for i, A in enumerate(matrices) if A.shape == (d1, d2)]
            stack = self.lmo(torch.stack([matrices[i] for i in same])) * SCALES[self.scale](d1, d2)
            for i, step in zip(same, stack.unbind(), strict=True):
                D[i] = step.reshape(-1)
        return (torch.cat(D) if D else G), kept

    def lmo(self, G: Tensor) -> Tensor:
        """The oracle, for float[..., d1, d2]."""
        if not isinstance(self.norm, str):
            return self.norm(G)
        if self.norm != "spectral":
            return {"euclidean": lmo_euclidean, "max": lmo_max}[self.norm](G)
        if self.bfloat16:
            return lmo_spectral(normalised(G).bfloat16(), self.T, self.coefficients).to(G.dtype)
        return lmo_spectral(G, self.T, self.coefficients)
