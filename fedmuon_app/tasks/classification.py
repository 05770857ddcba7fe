"""One of several classes."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fedmuon_app.tasks import ByExample, counts


@dataclass(frozen=True)
class Classification(ByExample):
    """Cross-entropy of scores float[B, classes] and labels int64[B]."""

    label_smoothing: float = 0.0
    metrics = ("accuracy", "loss")

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """See :class:`fedmuon_app.tasks.Task`."""
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.label_smoothing)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many, how many are right, and the sum of their losses."""
        loss = F.cross_entropy(outputs, targets, reduction="sum")
        return counts(outputs.new_tensor(len(targets)), (outputs.argmax(1) == targets).sum(), loss)


@dataclass(frozen=True)
class MultiLabel(ByExample):
    """Any number of labels: binary cross-entropy of scores float[B, labels] and float[B, labels] of 0 and 1."""

    metrics = ("accuracy", "loss")

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the labels."""
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many examples, the share of their labels that is right, and the sum of their losses."""
        right = ((outputs > 0) == (targets > 0)).double().mean(1).sum()
        return counts(outputs.new_tensor(len(targets)), right, self.losses(outputs, targets).sum())
