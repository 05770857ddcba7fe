from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.client import (
    ClientState,
    Gradient,
    NonFiniteError,
    Update,
    initial_gradient,
    initial_state,
    local_round,
)
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.methods import METHODS, Hyper, Method
from fedmuon_app.algorithms.newton_schulz import QUINTIC
from fedmuon_app.algorithms.server import initial_server, server_step
from fedmuon_app.algorithms.steps import Adam, Muon, Sgd
from tests.games import ToyFederation, quadratics

HP = Hyper(lr=0.01, vector_lr=0.02)


def model(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"bias": (4,), "conv": (4, 3, 2, 2), "tall": (7, 3), "wide": (3, 7), "gain": (), "twin": (3, 7)}
    return {w: torch.randn(shape, generator=g) for w, shape in shapes.items()}


LAYOUT = Layout.of(model())
X0 = LAYOUT.flat(model())


def least_squares(X: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """½‖X - A‖² with a new A each step."""
    g = X - LAYOUT.flat(model(seed=100 + batch))
    return g.pow(2).sum() / 2, g


def play(
    name: str | Method,
    batches: range,
    hp: Hyper = HP,
    X: Tensor = X0,
    C: Tensor | None = None,
    state: ClientState | None = None,
    layout: Layout = LAYOUT,
    gradient: Gradient[int] = least_squares,
) -> tuple[Update, ClientState]:
    method = METHODS[name] if isinstance(name, str) else name
    C = initial_server(method, X).C if C is None else C
    return local_round(method, hp, layout, gradient, X, C, state or initial_state(method, layout, X), batches)


def with_T(method: Method, T: int | None) -> Method:
    step = method.matrix_step
    return replace(method, matrix_step=replace(step, T=T)) if isinstance(step, Muon) else method


def moved(update: Update, w: str) -> Tensor:
    return LAYOUT.views(update.X - X0)[w]


def gradient_at_X0(w: str) -> Tensor:
    return LAYOUT.views(least_squares(X0, 0)[1])[w]


@pytest.mark.parametrize("name", METHODS)
def test_a_round_changes_none_of_its_arguments(name: str) -> None:
    X, C = X0.clone(), initial_server(METHODS[name], X0).C
    _, state = play(name, range(2), X=X, C=C)
    before = [x.clone() for x in (X, C, state.M, state.C, *state.kept.values())]
    play(name, range(2, 4), X=X, C=C, state=state)
    assert all(torch.equal(x, y) for x, y in zip((X, C, state.M, state.C, *state.kept.values()), before, strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_the_first_step_goes_downhill(name: str) -> None:
    update, state = play(name, range(1))
    assert all(float((gradient_at_X0(w) * moved(update, w)).sum()) < 0 for w in LAYOUT.shapes)
    assert state.steps == 1
    assert update.loss == pytest.approx(float(least_squares(X0, 0)[0]))


def test_one_fedmuon_client_alone_is_localmuon() -> None:
    gradients, _ = quadratics(1, 4, 6, noise=0.1)
    start = torch.ones(4, 6, dtype=torch.float64)
    fed, local = (ToyFederation(METHODS[name], HP, gradients, start, K=3).play(20) for name in ("fedmuon", "localmuon"))
    torch.testing.assert_close(fed.x, local.x, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("scale", "adjust"), [("jordan", "original"), ("moonlight", "match_rms_adamw")])
def test_one_localmuon_client_is_torchs_muon(scale: str, adjust: str) -> None:
    hp = Hyper(lr=0.02, vector_lr=0.1, alpha=0.1)
    update, _ = play(Method(Muon(scale=scale), Sgd()), range(8), hp)
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in model().items() if x.ndim == 2}
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
    run(optimiser, weights, 8)
    for w, p in weights.items():
        theirs = p.data - model()[w]
        assert (moved(update, w) - theirs).norm() < 0.02 * theirs.norm()  # torch iterates in bfloat16


@pytest.mark.parametrize("heavy_ball", [False, True])
def test_one_fedavg_client_is_torchs_sgd(heavy_ball: bool) -> None:
    lr = 0.05
    update, _ = play("fedavg", range(6), Hyper(lr=lr, vector_lr=lr, heavy_ball=heavy_ball))
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in model().items()}
    # (1-α)M + αg from M = 0 is α times the heavy ball
    optimiser = torch.optim.SGD(weights.values(), lr=lr if heavy_ball else 0.1 * lr, momentum=0.9, dampening=0.0)
    run(optimiser, weights, 6)
    torch.testing.assert_close(update.X, LAYOUT.flat({w: p.data for w, p in weights.items()}), atol=1e-6, rtol=1e-5)


def test_one_adam_client_is_torchs_adam_over_two_rounds() -> None:
    hp = Hyper(lr=0.05, vector_lr=0.05)
    first, state = play("fedavg_adam", range(3), hp)
    second, _ = play("fedavg_adam", range(3, 6), hp, X=first.X, state=state)
    weights = {w: torch.nn.Parameter(x.clone()) for w, x in model().items()}
    run(torch.optim.Adam(weights.values(), lr=0.05), weights, 6)
    torch.testing.assert_close(second.X, LAYOUT.flat({w: p.data for w, p in weights.items()}), atol=1e-6, rtol=1e-5)


def test_adam_takes_the_same_steps_with_a_heavy_ball() -> None:
    ema, ball = (
        play(Method(*[Adam(heavy_ball=heavy)] * 2), range(4), replace(HP, heavy_ball=heavy))[0]
        for heavy in (False, True)
    )
    torch.testing.assert_close(ball.X, ema.X, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["fedavg_adam", "scaffold_adam"])
def test_a_gradient_whose_square_overflows_is_an_error_and_not_a_client_that_never_moves_again(name: str) -> None:
    def huge(X: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        loss, g = least_squares(X, batch)
        LAYOUT.views(g)["tall"].fill_(1e20)
        return loss, g

    with pytest.raises(NonFiniteError, match="after 2 local steps in tall:"):
        play(name, range(2), gradient=huge)


def test_adams_moments_can_start_anew_each_round() -> None:
    hp = Hyper(lr=0.05, vector_lr=0.05, keep_momentum=False)
    once, state = play("fedavg_adam", range(3), hp)
    again, _ = play("fedavg_adam", range(3), hp, state=state)
    assert torch.equal(again.X, once.X)


def run(optimiser: torch.optim.Optimizer, weights: dict[str, torch.nn.Parameter], steps: int) -> None:
    for batch in range(steps):
        A = model(seed=100 + batch)
        for w, p in weights.items():
            p.grad = p.data - A[w]
        optimiser.step()


def test_vectors_are_corrected_too_with_their_own_step_size() -> None:
    update, _ = play("fedmuon", range(1), replace(HP, alpha=1.0), C=torch.full_like(X0, 0.25))
    for w in ("bias", "gain"):
        torch.testing.assert_close(moved(update, w), -0.02 * (gradient_at_X0(w) + 0.25), atol=1e-6, rtol=1e-5)


def test_a_convolution_is_the_matrix_of_its_output_channels() -> None:
    update, _ = play(Method(Muon(T=None), Sgd()), range(1))
    step = moved(update, "conv").reshape(4, 12) / (HP.lr * 0.2 * 12**0.5)
    torch.testing.assert_close(step @ step.T, torch.eye(4), atol=1e-4, rtol=0)


def test_matrices_of_one_shape_keep_their_own_steps() -> None:
    update, _ = play(Method(Muon(T=None, scale="one"), Sgd()), range(1))
    for w in ("wide", "twin"):
        U, _, Vh = torch.linalg.svd(gradient_at_X0(w), full_matrices=False)
        torch.testing.assert_close(moved(update, w) / HP.lr, -U @ Vh, atol=1e-4, rtol=0)


def test_an_excluded_matrix_takes_the_vectors_rule() -> None:
    without = Layout.of(model(), exclude=["wide"])

    def gradient(X: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        A = model(seed=100 + batch)
        return torch.tensor(0.0), without.flat({w: x - A[w] for w, x in without.views(X).items()})

    start = without.flat(model())
    update, _ = play("localmuon", range(1), replace(HP, alpha=1.0), X=start, layout=without, gradient=gradient)
    step = without.views(update.X - start)["wide"]
    torch.testing.assert_close(step, -0.02 * gradient_at_X0("wide"), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("norm", ["euclidean", "max"])
def test_the_other_norms(norm: str) -> None:
    update, _ = play(Method(Muon(norm=norm, scale="one"), Sgd()), range(1))
    step, g = moved(update, "tall") / HP.lr, gradient_at_X0("tall")
    torch.testing.assert_close(step, -g / g.norm() if norm == "euclidean" else -g.sign(), atol=1e-4, rtol=0)


def test_bfloat16_newton_schulz_is_near_float32s() -> None:
    exact, rough = (play(Method(Muon(bfloat16=b), Sgd()), range(1))[0] for b in (False, True))
    assert exact.X.dtype == rough.X.dtype == torch.float32
    difference = (moved(exact, "wide") - moved(rough, "wide")).norm() / moved(exact, "wide").norm()
    assert 1e-5 < difference < 0.03


@pytest.mark.parametrize("T", [5, None])
@pytest.mark.parametrize("name", METHODS)
def test_nan_is_an_error_that_names_the_parameter(name: str, T: int | None) -> None:
    def breaks(X: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        loss, g = least_squares(X, batch)
        if batch == 1:
            LAYOUT.views(g)["tall"].fill_(torch.nan)
        return loss, g

    with pytest.raises(NonFiniteError, match="after 3 local steps in tall:"):
        play(with_T(METHODS[name], T), range(3), gradient=breaks)


def test_no_minibatch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one minibatch"):
        play("fedavg", range(0))


@pytest.mark.parametrize("name", ["fedmuon", "scaffold", "scaffold_adam"])
@pytest.mark.parametrize("heavy_ball", [False, True])
def test_the_gradient_start_makes_C_the_mean_gradient(name: str, heavy_ball: bool) -> None:
    method, hp = METHODS[name], replace(HP, heavy_ball=heavy_ball)
    state = initial_state(method, LAYOUT, X0)
    updates, states = zip(
        *(initial_gradient(method, hp, LAYOUT, least_squares, X0, state, i) for i in range(3)), strict=True
    )
    server = server_step(initial_server(method, X0), updates, n=3)
    size = 10 if heavy_ball and name == "fedmuon" else 1  # a heavy ball is 1/α gradients
    assert torch.equal(server.X, X0)
    mean = torch.stack([least_squares(X0, i)[1] for i in range(3)]).mean(0)
    torch.testing.assert_close(server.C, size * mean)
    assert all(s.steps == 1 for s in states)
    assert (states[0].M is states[0].C) == (name == "fedmuon")
