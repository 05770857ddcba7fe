"""SCAFFOLD against its own paper, and against the ways in which public code gets it wrong."""

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.methods import METHODS, Hyper
from fedmuon_app.federation.sampling import cohort
from tests.games import Gradient, ToyFederation, quadratics

START = torch.zeros(3, 5, dtype=torch.float64)


def option_ii(gradients: list[Gradient], rounds: int, S: int, K: int, lr: float) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Algorithm 1 of Karimireddy et al. 2020 with option II, its line numbers beside it; x, c and the c_i.

    Their global step size is S/n here, which call_ids their mean over S into this paper's sum over n.
    """
    n = len(gradients)
    x, c, c_i, taken = START.clone(), torch.zeros_like(START), [torch.zeros_like(START)] * n, [0] * n
    for r in range(1, rounds + 1):
        sampled = cohort(0, r, range(n), S)
        dy, dc = [], []
        for i in sampled:
            y = x.clone()  # 6
            for _ in range(K):
                y = y - lr * (gradients[i](y, taken[i]) - c_i[i] + c)  # 9 and 10
                taken[i] += 1
            c_plus = c_i[i] - c + (x - y) / (K * lr)  # 12, option II
            dy.append(y - x)  # 13
            dc.append(c_plus - c_i[i])
            c_i[i] = c_plus  # 14
        x = x + (S / n) * sum(dy) / S  # 16 and 17
        c = c + (S / n) * sum(dc) / S
    return x, c, c_i


def test_at_alpha_1_it_is_option_ii_with_partial_participation() -> None:
    gradients, _ = quadratics(6, 3, 5, noise=0.3)
    x, c, c_i = option_ii(gradients, rounds=30, S=2, K=4, lr=0.05)
    game = ToyFederation(METHODS["scaffold"], Hyper(0.05, 0.05, alpha=1.0), gradients, START, K=4).play(30, S=2)
    torch.testing.assert_close(game.x, x, atol=1e-11, rtol=0)
    torch.testing.assert_close(game.matrix(game.server.C), c, atol=1e-11, rtol=0)
    for i, state in game.states.items():
        torch.testing.assert_close(game.matrix(state.C), c_i[i], atol=1e-11, rtol=0)


@pytest.mark.parametrize("name", ["scaffold", "scaffold_adam"])
def test_the_correction_changes_the_step(name: str) -> None:
    gradients, _ = quadratics(2, 3, 5)
    game = ToyFederation(METHODS[name], Hyper(0.05, 0.05), gradients, START, K=2)
    game.round([0, 1])
    corrected = game.train(0).X
    game.server.C.zero_()  # with c = 0 only -c_i is left
    assert not torch.equal(corrected, game.train(0).X)


def test_its_sign_is_plus_c_minus_c_i() -> None:
    gradients, _ = quadratics(2, 3, 5)
    game = ToyFederation(METHODS["scaffold"], Hyper(0.05, 0.05, alpha=1.0), gradients, START)
    game.round([0, 1])
    x, c, c_0 = game.x, game.matrix(game.server.C), game.matrix(game.states[0].C)
    torch.testing.assert_close(game.matrix(game.train(0).X), x - 0.05 * (gradients[0](x, 1) - c_0 + c))


def test_c_i_is_the_mean_gradient_and_not_its_negative() -> None:
    gradients, _ = quadratics(1, 3, 5)
    game = ToyFederation(METHODS["scaffold"], Hyper(0.05, 0.05), gradients, START)
    game.round([0])
    torch.testing.assert_close(game.matrix(game.states[0].C), gradients[0](START, 0))


def test_every_client_counts_and_not_only_the_last() -> None:
    deltas = (1.0, 3.0, 8.0)
    gradients: list[Gradient] = [lambda X, step, d=d: torch.full_like(X, d) for d in deltas]  # type: ignore[misc]
    game = ToyFederation(METHODS["scaffold"], Hyper(0.1, 0.1), gradients, START)
    game.round([0, 1, 2])
    torch.testing.assert_close(game.matrix(game.server.C), torch.full_like(START, sum(deltas) / 3))


def test_c_starts_at_zero_and_not_at_the_weights() -> None:
    gradients, _ = quadratics(3, 3, 5)
    game = ToyFederation(METHODS["scaffold"], Hyper(0.1, 0.1), gradients, START + 7)
    assert (game.server.C == 0).all()


def test_a_late_comer_leaves_c_the_mean_of_all_c_i() -> None:
    gradients, best = quadratics(4, 3, 5)
    game = ToyFederation(METHODS["scaffold"], Hyper(0.2, 0.2), gradients, START, K=3)
    for _ in range(30):
        game.round([0, 1, 2])  # client 3 is away
    game.round([3])
    torch.testing.assert_close(game.server.C, game.mean_C(), atol=1e-12, rtol=0)
    game.play(400)
    assert (game.x - best).norm() < 1e-8


def test_adams_second_moment_is_fed_with_the_corrected_gradient() -> None:
    gradients: list[Gradient] = [lambda X, step: torch.zeros_like(X), lambda X, step: torch.ones_like(X)]
    game = ToyFederation(METHODS["scaffold_adam"], Hyper(0.01, 0.01), gradients, START)
    game.round([0, 1])
    before = game.x
    game.round([0])  # its raw gradient is 0 for ever: a v of raw gradients would be 0 and the step huge
    assert (game.states[0].kept["all.v"] > 0).all()
    assert (game.x - before).abs().max() <= 0.011
