"""The theory's game with partial participation and the mean of its C_i."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuon_app.federation.sampling import cohort
from fedmuon_app.theory import game
from fedmuon_app.theory.game import Gradient, quadratics

__all__ = ["Gradient", "ToyFederation", "quadratics"]


@dataclass
class ToyFederation(game.ToyFederation):
    def play(self, rounds: int, S: int | None = None, seed: int = 0) -> "ToyFederation":
        n = len(self.gradients)
        for r in range(1, rounds + 1):
            self.round(cohort(seed, r, range(n), S or n))
        return self

    def mean_C(self) -> Tensor:
        zero = torch.zeros_like(self.server.X)
        kept = [self.states[i].C if i in self.states else zero for i in range(len(self.gradients))]
        return sum(kept, zero) / len(self.gradients)
