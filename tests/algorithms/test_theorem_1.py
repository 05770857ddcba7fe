"""Theorem 1's counter-example: f_1 = x²/2, f_2 = (x + a)²/2, from x = -a/4; the optimum is -a/2."""

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.steps import Hyper
from tests.games import Game

A, ETA = 4.0, 2.0**-7  # powers of two: LocalMuon's cancellation is then exact


def play(name: str, alpha: float, rounds: int, norm: str = "spectral", **outer: float) -> list[Tensor]:
    hp = Hyper(ETA, ETA, alpha=alpha, norm=norm, scale="one")
    start = torch.tensor([[-A / 4]], dtype=torch.float64)
    game = Game(METHODS[name], hp, [lambda x, _: x, lambda x, _: x + A], start, **outer)
    path = []
    for _ in range(rounds):
        game.round([0, 1])
        path.append(game.x)
    return path


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("norm", ["spectral", "euclidean", "max"])
def test_localmuon_never_moves(alpha: float, norm: str) -> None:
    assert all(x.item() == -A / 4 for x in play("localmuon", alpha, 300, norm))


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_muloco_never_moves(alpha: float) -> None:
    assert all(x.item() == -A / 4 for x in play("muloco", alpha, 300, outer_lr=0.7, outer_momentum=0.6))


@pytest.mark.parametrize(("alpha", "cycle"), [(1.0, 2), (0.5, 2), (0.1, 5)])
@pytest.mark.parametrize("norm", ["spectral", "euclidean", "max"])
def test_fedmuon_reaches_the_optimum_up_to_its_limit_cycle(alpha: float, cycle: int, norm: str) -> None:
    path = play("fedmuon", alpha, 1500, norm)
    assert max(abs(x.item() + A / 2) for x in path[-200:]) <= cycle * ETA
