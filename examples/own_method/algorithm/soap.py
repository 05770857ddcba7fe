"""A step rule of one's own: Adam in the eigenbasis of Shampoo's L, on the rows' side (after Vyas et al. 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Soap:
    """Its numbers; what a client keeps for it, by name and size; and one pure function."""

    beta2: float = 0.95
    eps: float = 1e-8

    def slots(self, shapes: Sequence[torch.Size]) -> Mapping[str, int]:
        """L, the mean of G Gᵀ, of d1 × d1 for each matrix, and Adam's second moment v in its eigenbasis."""
        return {"L": sum(shape[0] ** 2 for shape in shapes), "v": sum(shape.numel() for shape in shapes)}

    def __call__(
        self,
        G: Tensor,
        g: Tensor,
        X_i: Tensor,
        kept: Mapping[str, Tensor],
        t: int | Tensor,
        shapes: Sequence[torch.Size],
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The direction from the momentum G, and L and v with the gradient g in them."""
        sizes, sides = [shape.numel() for shape in shapes], [shape[0] ** 2 for shape in shapes]
        parts = zip(shapes, G.split(sizes), g.split(sizes), kept["L"].split(sides), kept["v"].split(sizes), strict=True)
        D, L_next, v_next = [], [], []
        for shape, M, grad, L, v in parts:
            M, grad, L = M.view(shape[0], -1), grad.view(shape[0], -1), L.view(shape[0], -1)
            L = self.beta2 * L + (1 - self.beta2) * grad @ grad.T
            Q = torch.linalg.eigh(L + 1e-6 * L.diagonal().mean() * torch.eye(len(L))).eigenvectors
            v = self.beta2 * v + (1 - self.beta2) * (Q.T @ grad).square().view(-1)
            v_hat = v.view_as(M) / (1 - self.beta2**t)
            D.append(-0.1 * (Q @ ((Q.T @ M) / (v_hat.sqrt() + self.eps))).reshape(-1))
            L_next.append(L.reshape(-1))
            v_next.append(v)
        return torch.cat(D), {"L": torch.cat(L_next), "v": torch.cat(v_next)}
