"""Step sizes over rounds, weight decay, clipping and the proximal term: each against torch's own, or by hand."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch.optim import lr_scheduler

from fedmuon_app.algorithms.methods import Hyper
from fedmuon_app.algorithms.schedules import SHAPES, Schedule
from tests.algorithms.test_client import HP, LAYOUT, X0, model, play

R = 40
ONE = Hyper(lr=0.05, vector_lr=0.05, heavy_ball=True)
THEIRS: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "constant": lambda o: lr_scheduler.ConstantLR(o, 1.0),
    "linear": lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, R),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, R),
    "step": lambda o: lr_scheduler.MultiStepLR(o, [R // 2, 3 * R // 4], 0.1),
}


def theirs(shape: str) -> Iterator[float]:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = THEIRS[shape](optimiser)
    for _ in range(R):
        yield optimiser.param_groups[0]["lr"]
        optimiser.step()
        schedule.step()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_are_torchs(shape: str) -> None:
    assert [Schedule(shape, R)(r) for r in range(1, R + 1)] == pytest.approx(list(theirs(shape)), abs=1e-6)


def test_a_warmup_rises_in_equal_steps_and_the_final_share_is_reached() -> None:
    schedule = Schedule("cosine", 14, warmup=4, final=0.1)
    assert [schedule(r) for r in range(1, 6)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert schedule(15) == pytest.approx(0.1)
    assert schedule(10) == pytest.approx(0.55)  # half of the way


def test_a_constant_schedule_leaves_the_numbers_as_they_are() -> None:
    assert HP.at(7) is HP


def test_both_step_sizes_follow_it() -> None:
    hp = replace(HP, schedule=Schedule("linear", 10))
    assert (hp.at(6).lr, hp.at(6).vector_lr) == (HP.lr / 2, HP.vector_lr / 2)


def weights_after(optimiser_of: Callable[..., torch.optim.Optimizer], steps: int, **options: float) -> torch.Tensor:
    """torch's optimiser on the least squares of :func:`tests.algorithms.test_client.play`."""
    clip, mu = options.pop("clip", 0.0), options.pop("prox", 0.0)
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in model().items()}
    start = model()
    optimiser = optimiser_of(weights.values(), lr=0.05, **options)
    for batch in range(steps):
        optimiser.zero_grad()
        A = model(seed=100 + batch)
        loss = sum(((p - A[w]) ** 2).sum() / 2 + mu / 2 * ((p - start[w]) ** 2).sum() for w, p in weights.items())
        loss.backward()  # type: ignore[union-attr]
        if clip:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        optimiser.step()
    return LAYOUT.flat({w: p.data for w, p in weights.items()})


def test_weight_decay_is_adamws() -> None:
    update, _ = play("fedavg_adam", range(6), replace(ONE, weight_decay=0.3, heavy_ball=False))
    torch.testing.assert_close(update.X, weights_after(torch.optim.AdamW, 6, weight_decay=0.3), atol=1e-6, rtol=1e-6)


def test_muons_weight_decay_is_torchs() -> None:
    decayed, plain = (play("localmuon", range(1), replace(HP, weight_decay=d))[0].X for d in (0.5, 0.0))
    for w, x in LAYOUT.views(decayed - plain).items():
        lr = HP.lr if w in LAYOUT.matrices else HP.vector_lr
        torch.testing.assert_close(x, -lr * 0.5 * model()[w], atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{"clip": 1.5}, {"prox": 0.7}, {"clip": 2.0, "prox": 3.0}], ids=str)
def test_clipping_and_fedprox_are_an_independent_loops(options: dict[str, float]) -> None:
    update, _ = play("fedavg", range(6), replace(ONE, **options))
    expected = weights_after(torch.optim.SGD, 6, momentum=0.9, **options)
    torch.testing.assert_close(update.X, expected, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(update.X, play("fedavg", range(6), ONE)[0].X)


def test_a_gradient_below_the_bound_is_not_scaled_up() -> None:
    assert torch.equal(play("fedavg", range(3), replace(ONE, clip=1e6))[0].X, play("fedavg", range(3), ONE)[0].X)


def test_prox_pulls_towards_the_servers_X_for_every_method() -> None:
    free, held = (play("fedmuon", range(20), replace(HP, prox=mu))[0].X - X0 for mu in (0.0, 50.0))
    assert held.norm() < 0.6 * free.norm()
