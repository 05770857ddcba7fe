"""Every task against torch's own losses, and sums over batches against one batch."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuon_app.tasks import Task
from fedmuon_app.tasks.classification import Classification, MultiLabel
from fedmuon_app.tasks.language_model import PADDING, LanguageModel
from fedmuon_app.tasks.regression import Regression

g = torch.Generator().manual_seed(0)
LABELS, TOKENS = torch.randint(5, (12,), generator=g), torch.randint(7, (12, 6), generator=g)
TOKENS[3, 4:] = PADDING
CASES: list[tuple[Any, Tensor, Tensor, Any]] = [
    (Classification(), torch.randn(12, 5, generator=g), LABELS, F.cross_entropy),
    (
        MultiLabel(),
        torch.randn(12, 3, generator=g),
        torch.randint(2, (12, 3), generator=g).float(),
        F.binary_cross_entropy_with_logits,
    ),
    (Regression(), torch.randn(12, 2, generator=g), torch.randn(12, 2, generator=g), F.mse_loss),
    (
        LanguageModel(),
        torch.randn(12, 6, 7, generator=g),
        TOKENS,
        lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten(), ignore_index=PADDING),
    ),
]


@pytest.mark.parametrize(("task", "outputs", "targets", "theirs"), CASES, ids=lambda x: type(x).__name__)
def test_the_measured_loss_is_torchs_whatever_the_batches(
    task: Task, outputs: Tensor, targets: Tensor, theirs: Any
) -> None:
    parts = [slice(0, 5), slice(5, 6), slice(6, 12)]
    total = sum((task.sums(outputs[part], targets[part]) for part in parts), torch.zeros(()))
    measured = task.measured(total)
    assert tuple(measured) == task.metrics
    assert measured["loss"] == pytest.approx(float(theirs(outputs, targets)), rel=1e-6)
    assert task.shape(targets, outputs.shape[-1]) == tuple(outputs.shape)


@pytest.mark.parametrize(("task", "outputs", "targets", "theirs"), CASES[:3], ids=lambda x: type(x).__name__)
def test_the_mean_of_the_losses_of_a_batch_is_torchs(task: Task, outputs: Tensor, targets: Tensor, theirs: Any) -> None:
    assert float(task.losses(outputs, targets).mean()) == pytest.approx(float(theirs(outputs, targets)), rel=1e-6)


def test_what_is_measured_beside_the_loss() -> None:
    (_, outputs, labels, _), (_, scores, marks, _), (_, found, wanted, _), (_, words, tokens, _) = CASES
    right = float((outputs.argmax(1) == labels).float().mean())
    assert Classification().measured(Classification().sums(outputs, labels))["accuracy"] == pytest.approx(right)
    share = float(((scores > 0) == (marks > 0)).float().mean())
    assert MultiLabel().measured(MultiLabel().sums(scores, marks))["accuracy"] == pytest.approx(share)
    mae = float((found - wanted).abs().mean())
    assert Regression().measured(Regression().sums(found, wanted))["mae"] == pytest.approx(mae)
    said = LanguageModel().measured(LanguageModel().sums(words, tokens))
    counted = tokens != PADDING
    assert said["accuracy"] == pytest.approx(float((words.argmax(2) == tokens)[counted].float().mean()))
    assert said["perplexity"] == pytest.approx(math.exp(said["loss"]))


def test_a_text_counts_by_its_tokens() -> None:
    _, words, tokens, _ = CASES[3]
    one = F.cross_entropy(words[3, :4], tokens[3, :4])
    assert float(LanguageModel().losses(words, tokens)[3]) == pytest.approx(float(one))


def test_smoothed_labels_are_trained_on_and_not_tested_on() -> None:
    _, outputs, labels, _ = CASES[0]
    smooth = Classification(label_smoothing=0.1)
    assert float(smooth.losses(outputs, labels).mean()) == pytest.approx(
        float(F.cross_entropy(outputs, labels, label_smoothing=0.1))
    )
    assert smooth.measured(smooth.sums(outputs, labels)) == Classification().measured(
        Classification().sums(outputs, labels)
    )
