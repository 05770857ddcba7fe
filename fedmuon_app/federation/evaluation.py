"""What is measured of X after a round, as a line of metrics.jsonl has it, and what result.json says of all lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedmuon_app.federation.stopping import sign


@dataclass(frozen=True)
class Evaluation:
    """X after a round: what is measured on the test set, by name; what decides comes first.

    ``train_loss`` is the round's clients', null where nobody replied; ``diagnostics`` are further numbers for the line.
    """

    round: int
    test: Mapping[str, float]
    train_loss: float | None
    diagnostics: Mapping[str, float | None] = field(default_factory=dict)

    def with_(self, more: Mapping[str, float | None], spread: Mapping[str, float]) -> "Evaluation":
        """With further numbers, and the clients' numbers, whose means stand for the test where there is none."""
        test = {name: spread.get(f"client_{name}", x) if math.isnan(x) else x for name, x in self.test.items()}
        return replace(self, test=test, diagnostics={**self.diagnostics, **more, **spread})

    def line(self) -> dict[str, Any]:
        """What metrics.jsonl begins with."""
        return {"round": self.round, **{f"test_{k}": x for k, x in self.test.items()}, "train_loss": self.train_loss}


def ends(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """What result.json says of these lines of metrics.jsonl: the last and best ``metric``, and accuracy if there is."""
    found: dict[str, Any] = {"metric": metric}
    for key, last, best in ((metric, "final", "best"), ("test_accuracy", "final_accuracy", "best_accuracy")):
        if key in lines[-1]:
            side, known = sign(key), [line[key] for line in lines if line[key] is not None]
            found |= {last: lines[-1][key], best: side * max(side * x for x in known) if known else None}
    return found
