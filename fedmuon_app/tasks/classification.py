"""One of several classes."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fedmuon_app.tasks import counts


@dataclass(frozen=True)
class Classification:
    """Cross-entropy of scores float[B, classes] and labels int64[B]."""

    label_smoothing: float = 0.0
    metrics = ("accuracy", "loss")

    def shape(self, targets: Tensor, outputs: int) -> tuple[int, ...]:
        """See :class:`fedmuon_app.tasks.Task`."""
        return len(targets), outputs

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See :class:`fedmuon_app.tasks.Task`."""
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.label_smoothing)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many, how many are right, and the sum of their losses."""
        loss = F.cross_entropy(outputs, targets, reduction="sum")
        return counts(outputs.new_tensor(len(targets)), (outputs.argmax(1) == targets).sum(), loss)

    def measured(self, sums: Tensor) -> Mapping[str, float]:
        """See :class:`fedmuon_app.tasks.Task`."""
        count, right, loss = sums.tolist()
        return {"accuracy": right / count, "loss": loss / count}


@dataclass(frozen=True)
class MultiLabel:
    """Any number of labels: binary cross-entropy of scores float[B, labels] and float[B, labels] of 0 and 1."""

    metrics = ("accuracy", "loss")

    def shape(self, targets: Tensor, outputs: int) -> tuple[int, ...]:
        """See :class:`fedmuon_app.tasks.Task`."""
        return len(targets), outputs

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the labels."""
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many examples, the share of their labels that is right, and the sum of their losses."""
        right = ((outputs > 0) == (targets > 0)).double().mean(1).sum()
        return counts(outputs.new_tensor(len(targets)), right, self.losses(outputs, targets).sum())

    def measured(self, sums: Tensor) -> Mapping[str, float]:
        """See :class:`fedmuon_app.tasks.Task`."""
        count, right, loss = sums.tolist()
        return {"accuracy": right / count, "loss": loss / count}
