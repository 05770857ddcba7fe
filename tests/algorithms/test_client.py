from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.client import NonFiniteError, initial_gradient, initial_state, local_round
from fedmuon_app.algorithms.lmo import QUINTIC
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.params import Params
from fedmuon_app.algorithms.server import initial_server, server_step
from fedmuon_app.algorithms.steps import Hyper
from tests.games import Game, quadratics

HP = Hyper(lr=0.01, vector_lr=0.02)


def model(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"conv": (4, 3, 2, 2), "tall": (7, 3), "wide": (3, 7), "bias": (4,), "gain": ()}
    return {w: torch.randn(shape, generator=g) for w, shape in shapes.items()}


def least_squares(X: Params, batch: int) -> tuple[Tensor, Params]:
    """½‖X - A‖² with a new A each step."""
    A = model(seed=100 + batch)
    g = {w: x - A[w] for w, x in X.items()}
    return torch.stack([x.pow(2).sum() / 2 for x in g.values()]).sum(), g


@pytest.mark.parametrize("name", METHODS)
def test_a_round_changes_none_of_its_arguments(name: str) -> None:
    method, X = METHODS[name], model()
    state, C = initial_state(method, X), initial_server(method, X).C
    _, state = local_round(method, HP, least_squares, X, C, state, range(2))
    before = [{w: x.clone() for w, x in A.items()} for A in (X, C, state.M, state.C, state.v)]
    local_round(method, HP, least_squares, X, C, state, range(2, 4))
    for A, B in zip((X, C, state.M, state.C, state.v), before, strict=True):
        assert all(torch.equal(x, B[w]) for w, x in A.items())


@pytest.mark.parametrize("name", METHODS)
def test_the_first_step_goes_downhill(name: str) -> None:
    method, X = METHODS[name], model()
    update, state = local_round(
        method, HP, least_squares, X, initial_server(method, X).C, initial_state(method, X), range(1)
    )
    _, g = least_squares(X, 0)
    assert all(float((g[w] * (update.X[w] - X[w])).sum()) < 0 for w in X)
    assert state.steps == 1
    assert update.loss == pytest.approx(float(least_squares(X, 0)[0]))


def test_one_fedmuon_client_alone_is_localmuon() -> None:
    gradients, _ = quadratics(1, 4, 6, noise=0.1)
    X0 = torch.ones(4, 6, dtype=torch.float64)
    fed, local = (Game(METHODS[name], HP, gradients, X0, K=3).play(20) for name in ("fedmuon", "localmuon"))
    torch.testing.assert_close(fed.x, local.x, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("scale", "adjust"), [("jordan", "original"), ("moonlight", "match_rms_adamw")])
def test_one_localmuon_client_is_torchs_muon(scale: str, adjust: str) -> None:
    X = {w: x for w, x in model().items() if x.ndim == 2}
    hp = Hyper(lr=0.02, vector_lr=0.1, alpha=0.1, T=5, scale=scale)

    def gradient(Y: Params, batch: int) -> tuple[Tensor, Params]:
        A = model(seed=100 + batch)
        return torch.tensor(0.0), {w: y - A[w] for w, y in Y.items()}

    method = METHODS["localmuon"]
    update, _ = local_round(method, hp, gradient, X, {}, initial_state(method, X), range(8))
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in X.items()}
    optimiser = torch.optim.Muon(
        weights.values(),
        lr=hp.lr,
        weight_decay=0.0,
        momentum=0.9,
        nesterov=False,
        ns_coefficients=QUINTIC,
        ns_steps=5,
        adjust_lr_fn=adjust,
    )
    for batch in range(8):
        _, g = gradient({w: p.data for w, p in weights.items()}, batch)
        for w, p in weights.items():
            p.grad = g[w].clone()
        optimiser.step()
    for w, p in weights.items():
        moved = p.data - X[w]
        assert (update.X[w] - X[w] - moved).norm() < 0.02 * moved.norm()  # torch iterates in bfloat16


@pytest.mark.parametrize("heavy_ball", [False, True])
def test_one_fedavg_client_is_torchs_sgd(heavy_ball: bool) -> None:
    X, lr = model(), 0.05
    method = METHODS["fedavg"]
    hp = Hyper(lr=lr, vector_lr=lr, heavy_ball=heavy_ball)
    update, _ = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(6))
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in X.items()}
    optimiser = torch.optim.SGD(weights.values(), lr=lr, momentum=0.9, dampening=0.0)
    if not heavy_ball:  # (1-α)M + αg from M = 0 is α times the heavy ball
        optimiser.param_groups[0]["lr"] = 0.1 * lr
    run(optimiser, weights, 6)
    for w, p in weights.items():
        torch.testing.assert_close(update.X[w], p.data, atol=1e-6, rtol=1e-5)


def test_one_adam_client_is_torchs_adam_over_two_rounds() -> None:
    X, method = model(), METHODS["fedavg_adam"]
    hp = Hyper(lr=0.05, vector_lr=0.05)
    first, state = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(3))
    second, _ = local_round(method, hp, least_squares, first.X, {}, state, range(3, 6))
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in X.items()}
    run(torch.optim.Adam(weights.values(), lr=0.05), weights, 6)
    for w, p in weights.items():
        torch.testing.assert_close(second.X[w], p.data, atol=1e-6, rtol=1e-5)


def test_adams_moments_can_start_anew_each_round() -> None:
    X, method = model(), METHODS["fedavg_adam"]
    hp = Hyper(lr=0.05, vector_lr=0.05, keep_momentum=False)
    _, state = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(3))
    again, _ = local_round(method, hp, least_squares, X, {}, state, range(3))
    once, _ = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(3))
    assert all(torch.equal(again.X[w], once.X[w]) for w in X)


def run(optimiser: torch.optim.Optimizer, weights: dict[str, torch.nn.Parameter], steps: int) -> None:
    for batch in range(steps):
        _, g = least_squares({w: p.data for w, p in weights.items()}, batch)
        for w, p in weights.items():
            p.grad = g[w].clone()
        optimiser.step()


def test_vectors_are_corrected_too_with_their_own_step_size() -> None:
    X, method, hp = model(), METHODS["fedmuon"], replace(HP, alpha=1.0)
    C = {w: torch.full_like(x, 0.25) for w, x in X.items()}
    update, _ = local_round(method, hp, least_squares, X, C, initial_state(method, X), range(1))
    _, g = least_squares(X, 0)
    for w in ("bias", "gain"):
        torch.testing.assert_close(update.X[w], X[w] - 0.02 * (g[w] + 0.25))


def test_a_convolution_is_the_matrix_of_its_output_channels() -> None:
    X, method = model(), METHODS["localmuon"]
    update, _ = local_round(method, replace(HP, T=None), least_squares, X, {}, initial_state(method, X), range(1))
    step = ((update.X["conv"] - X["conv"]) / (HP.lr * 0.2 * 12**0.5)).reshape(4, 12)
    torch.testing.assert_close(step @ step.T, torch.eye(4), atol=1e-4, rtol=0)


def test_an_excluded_matrix_takes_the_vectors_rule() -> None:
    X, method, hp = model(), METHODS["localmuon"], replace(HP, alpha=1.0, exclude=frozenset({"wide"}))
    update, _ = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(1))
    torch.testing.assert_close(update.X["wide"], X["wide"] - 0.02 * least_squares(X, 0)[1]["wide"])


@pytest.mark.parametrize("norm", ["euclidean", "max"])
def test_the_other_norms(norm: str) -> None:
    X, method, hp = model(), METHODS["localmuon"], replace(HP, norm=norm, scale="one")
    update, _ = local_round(method, hp, least_squares, X, {}, initial_state(method, X), range(1))
    step, g = (update.X["tall"] - X["tall"]) / hp.lr, least_squares(X, 0)[1]["tall"]
    torch.testing.assert_close(step, -g / g.norm() if norm == "euclidean" else -g.sign(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", METHODS)
def test_nan_is_an_error_that_names_the_parameter_and_the_step(name: str) -> None:
    method, X = METHODS[name], model()

    def breaks(Y: Params, batch: int) -> tuple[Tensor, Params]:
        loss, g = least_squares(Y, batch)
        return loss, {w: x * torch.nan if w == "tall" and batch == 1 else x for w, x in g.items()}

    with pytest.raises(NonFiniteError, match="local step 2 in tall:"):
        local_round(method, HP, breaks, X, initial_server(method, X).C, initial_state(method, X), range(3))


def test_no_minibatch_is_refused() -> None:
    method, X = METHODS["fedavg"], model()
    with pytest.raises(ValueError, match="at least one minibatch"):
        local_round(method, HP, least_squares, X, {}, initial_state(method, X), [])


@pytest.mark.parametrize("name", ["fedmuon", "scaffold", "scaffold_adam"])
@pytest.mark.parametrize("heavy_ball", [False, True])
def test_the_gradient_start_makes_C_the_mean_gradient(name: str, heavy_ball: bool) -> None:
    method, X, hp = METHODS[name], model(), replace(HP, heavy_ball=heavy_ball)
    updates, states = zip(
        *(initial_gradient(method, hp, least_squares, X, initial_state(method, X), i) for i in range(3)), strict=True
    )
    server = server_step(initial_server(method, X), updates, n=3)
    size = 10 if heavy_ball and name == "fedmuon" else 1  # a heavy ball is 1/α gradients
    for w in X:
        assert torch.equal(server.X[w], X[w])
        mean = torch.stack([least_squares(X, i)[1][w] for i in range(3)]).mean(0)
        torch.testing.assert_close(server.C[w], size * mean)
    assert all(state.steps == 1 for state in states)
    assert (states[0].M is states[0].C) == (name == "fedmuon")
