import pytest
import torch

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.server import initial_server, server_step


def vectors(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([v], dtype=torch.float64) for v in values]


def test_the_papers_two_lines() -> None:
    (X,) = vectors(2.0)
    updates = [Update(x, dc, 0.0) for x, dc in zip(vectors(5.0, -1.0), vectors(1.0, 3.0), strict=True)]
    after = server_step(initial_server(METHODS["fedmuon"], X), updates, n=8)
    assert after.X.item() == pytest.approx((8 - 2) / 8 * 2 + (5 - 1) / 8)
    assert after.C.item() == pytest.approx((1 + 3) / 8)  # 1/n, not one over the number of replies


def test_a_method_without_control_has_no_C() -> None:
    (X,) = vectors(2.0)
    assert len(server_step(initial_server(METHODS["fedavg"], X), [Update(X, X[:0], 0.0)], n=2).C) == 0


def test_the_outer_step_is_torchs_nesterov_sgd_on_the_pseudo_gradient() -> None:
    (X,) = vectors(1.0)
    server = initial_server(METHODS["muloco"], X, outer_momentum=0.6)
    weight = torch.nn.Parameter(X.clone())
    optimiser = torch.optim.SGD([weight], lr=0.7, momentum=0.6, nesterov=True)
    for moved in (0.5, -0.25, 0.125):
        replies = [Update(server.X + moved, X[:0], 0.0)]
        server = server_step(server, replies, n=4, outer_lr=0.7, outer_momentum=0.6)
        weight.grad = torch.tensor([-moved / 4], dtype=torch.float64)
        optimiser.step()
    torch.testing.assert_close(server.X, weight.data)


def test_no_argument_changes() -> None:
    (X,) = vectors(1.0)
    before = initial_server(METHODS["fedmuon"], X, outer_momentum=0.5)
    server_step(before, [Update(*vectors(3.0, 1.0), 0.0)], n=2, outer_momentum=0.5)
    assert [x.item() for x in (before.X, before.C, before.U)] == [1.0, 0.0, 0.0]


def test_a_control_and_an_outer_momentum_have_memory_of_their_own() -> None:
    server = initial_server(METHODS["fedmuon"], torch.zeros(3), outer_momentum=0.9)
    assert server.C.data_ptr() != server.U.data_ptr()
