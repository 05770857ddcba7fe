"""Step sizes that change over rounds: a factor of both, lr and vector_lr."""

import math
from collections.abc import Callable
from dataclasses import dataclass

SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "step": lambda t: 1.0 if t < 1 / 2 else 0.1 if t < 3 / 4 else 0.01,
}
"""By name: the share of the way from the final step size to the first one that is left at t in [0, 1)."""


@dataclass(frozen=True)
class Schedule:
    """A factor of the step sizes for each round.

    Attributes:
        shape: a key of SHAPES: ``constant``, ``linear``, ``cosine`` (half a period), or ``step`` (a tenth from half of
            the rounds on, a hundredth from three quarters on).
        rounds: R, over which it goes.
        warmup: rounds before it in which the factor rises in equal steps to 1.
        final: what the factor falls to after round R, in [0, 1].
    """

    shape: str = "constant"
    rounds: int = 1
    warmup: int = 0
    final: float = 0.0

    def __call__(self, r: int) -> float:
        """The factor of round ``r``, from 1 on."""
        if r <= self.warmup:
            return r / self.warmup
        t = (r - 1 - self.warmup) / (self.rounds - self.warmup)
        return self.final + (1 - self.final) * SHAPES[self.shape](t)
