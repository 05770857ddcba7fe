from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmuon_app.data import sources
from fedmuon_app.errors import InputError
from fedmuon_app.models.lenet import LeNet
from fedmuon_app.objective import Builder, Objective
from fedmuon_app.tasks.classification import Classification
from fedmuon_app.tasks.inputs import Pixels, Plain, inputs_of

DATA = sources.digits()
CPU = torch.device("cpu")


def what(device: torch.device = CPU) -> tuple[Classification, Callable[[torch.dtype], Plain | Pixels]]:
    return Classification(), lambda dtype: inputs_of(DATA, "none", dtype, device)


def objective(build: Builder = LeNet, seed: int = 0) -> Objective:
    return Objective(build, seed, CPU, *what())


class Small(nn.Module):
    def __init__(self, middle: nn.Module, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), middle, nn.Linear(8, classes))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


def test_the_gradient_is_autograds_and_the_weights_stay() -> None:
    p = objective()
    X, batch = p.X0(), DATA.train.at(np.arange(32))
    before = X.clone()
    loss, g = p.gradient(X, batch)
    model = LeNet()
    model.load_state_dict(p.layout.views(X))
    pixels = (batch.inputs / 255 - DATA.mean[0]) / DATA.std[0]
    expected = F.cross_entropy(model(pixels), batch.targets)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    expected_g = p.layout.flat({w: weight.grad for w, weight in model.named_parameters() if weight.grad is not None})
    torch.testing.assert_close(g, expected_g, atol=1e-6, rtol=1e-4)
    assert torch.equal(X, before)
    assert not X.requires_grad


def test_the_weighted_gradient_is_that_of_the_examples_with_a_weight() -> None:
    p = objective()
    X, batch = p.X0(), DATA.train.at(np.arange(32))
    weights = torch.cat([torch.full((20,), 1 / 20), torch.zeros(12)])
    loss, g = p.weighted_gradient(X, (p.inputs(batch.inputs), batch.targets, weights))
    expected, expected_g = p.gradient(X, DATA.train.at(np.arange(20)))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(g, expected_g, atol=1e-6, rtol=1e-4)


def test_bfloat16_products_give_a_float32_gradient_nearby() -> None:
    batch = DATA.train.at(np.arange(32))
    half = Objective(LeNet, 0, CPU, *what(), bfloat16=True)
    _, rough = half.gradient(half.X0(), batch)
    _, g = objective().gradient(half.X0(), batch)
    assert rough.dtype == torch.float32
    assert 1e-4 < (rough - g).norm() / g.norm() < 0.1
    assert half.evaluate(half.X0(), DATA.test) == objective().evaluate(half.X0(), DATA.test)


def test_the_test_covers_all_examples() -> None:
    p = objective()
    X = p.X0()
    whole, parts = p.evaluate(X, DATA.test, batch_size=1000), p.evaluate(X, DATA.test, batch_size=7)
    assert whole == pytest.approx(parts)
    model = LeNet()
    model.load_state_dict(p.layout.views(X))
    scores = model((DATA.test.inputs / 255 - DATA.mean[0]) / DATA.std[0])
    assert whole["accuracy"] == pytest.approx((scores.argmax(1) == DATA.test.targets).float().mean().item())
    assert whole["loss"] == pytest.approx(F.cross_entropy(scores, DATA.test.targets).item(), rel=1e-5)


def test_the_seed_decides_the_weights_and_no_other_draw_changes() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (objective(seed=s).X0() for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_decided_by_seed_client_and_first_step() -> None:
    p = objective(lambda: Small(nn.Dropout(0.5)))
    X, indices = p.X0(), np.arange(64)

    def losses(client: int, first: int) -> list[float]:
        return [float(p.gradient(X, b)[0]) for b in p.minibatches(client, DATA.train, indices, first, 2, 64)]

    one = losses(0, 0)
    torch.rand(3)
    assert losses(0, 0) == one
    assert losses(0, 2) != one
    assert losses(1, 0) != one


def test_patterns_leave_matrices_out() -> None:
    p = Objective(LeNet, 0, CPU, *what(), exclude=["conv*"])
    assert list(p.layout.matrices) == ["fc1.weight", "fc2.weight", "fc3.weight"]
    with pytest.raises(InputError, match=r"exclude = head fits no parameter: there are conv1\.weight"):
        Objective(LeNet, 0, CPU, *what(), exclude=["head"])


def test_parameters_of_two_dtypes_are_refused() -> None:
    with pytest.raises(InputError, match="parameters of float32, float64: the trained ones must all be"):
        objective(lambda: Small(nn.Linear(8, 8).double()))


@pytest.mark.gpu
def test_the_gradient_on_a_gpu_is_the_cpus() -> None:
    X, batch = objective().X0(), DATA.train.at(np.arange(32))
    gpu = Objective(LeNet, 0, torch.device("cuda"), *what(torch.device("cuda")))
    _, g = gpu.gradient(X.cuda(), batch.to(torch.device("cuda")))
    torch.testing.assert_close(g.cpu(), objective().gradient(X, batch)[1], atol=1e-4, rtol=1e-3)


def test_the_test_is_without_dropout() -> None:
    p = objective(lambda: Small(nn.Dropout(0.5)))
    p.minibatches(0, DATA.train, np.arange(8), 0, 1, 8)  # leaves the model in training mode
    assert p.evaluate(p.X0(), DATA.test) == p.evaluate(p.X0(), DATA.test)
