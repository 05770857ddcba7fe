"""The next token of a text."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fedmuon_app.tasks import counts

PADDING = -100  # a target that does not count


@dataclass(frozen=True)
class LanguageModel:
    """Cross-entropy of scores float[B, L, vocabulary] and the tokens that follow, int64[B, L], by token."""

    metrics = ("loss", "accuracy", "perplexity")

    def shape(self, targets: Tensor, outputs: int) -> tuple[int, ...]:
        """See :class:`fedmuon_app.tasks.Task`."""
        return *targets.shape, outputs

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the tokens of each text."""
        by_token = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none", ignore_index=PADDING)
        return by_token.sum(1) / (targets != PADDING).sum(1).clamp(min=1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many tokens, how many are right, and the sum of their losses."""
        loss = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="sum", ignore_index=PADDING)
        return counts((targets != PADDING).sum(), (outputs.argmax(2) == targets).sum(), loss)

    def measured(self, sums: Tensor) -> Mapping[str, float]:
        """See :class:`fedmuon_app.tasks.Task`."""
        count, right, loss = sums.tolist()
        mean = loss / max(count, 1)
        return {"loss": mean, "accuracy": right / max(count, 1), "perplexity": math.exp(min(mean, 700))}
