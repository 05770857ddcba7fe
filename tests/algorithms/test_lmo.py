import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedmuon_app.algorithms.lmo import SCALES, lmo_euclidean, lmo_max, lmo_spectral, polar
from fedmuon_app.algorithms.newton_schulz import newton_schulz
from tests.algorithms.test_newton_schulz import randn

SHAPES = [(6, 25), (25, 6), (16, 150), (84, 120), (1, 7), (7, 1), (1, 1), (5, 5)]


def with_singular_values(s: Tensor, d1: int, d2: int, seed: int) -> Tensor:
    U, _ = torch.linalg.qr(randn(d1, len(s), seed=seed))
    V, _ = torch.linalg.qr(randn(d2, len(s), seed=seed + 1))
    return (U * s) @ V.mT


def schatten(s: Tensor, p: float) -> float:
    return float((s**p).sum() ** (1 / p))


def theorem_3s_p(kappa: float, T: int) -> float:
    if kappa > 1 - 1e-9:  # rank one: the paper's p is 0/0; its limit is 2 for T = 0, and 1 after
        return 2.0 if T == 0 else 1.0
    return 1 + math.log(1 - (1 - kappa) ** (1.5**T)) / math.log(kappa)


@st.composite
def spectra(draw: st.DrawFn) -> tuple[Tensor, int, int, int]:
    rank = draw(st.integers(1, 6))
    values = draw(st.lists(st.floats(-5, 0), min_size=rank, max_size=rank))
    d1, d2 = draw(st.integers(rank, 8)), draw(st.integers(rank, 8))
    return torch.tensor([10.0**v for v in values], dtype=torch.float64), d1, d2, draw(st.integers(0, 1000))


@pytest.mark.parametrize("shape", SHAPES)
def test_many_iterations_reach_the_polar_factor_of_the_svd(shape: tuple[int, int]) -> None:
    G = randn(*shape)
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    torch.testing.assert_close(newton_schulz(G, 40), U @ Vh, atol=1e-10, rtol=0)
    torch.testing.assert_close(polar(G), U @ Vh, atol=1e-12, rtol=0)


@pytest.mark.parametrize("d", [(4, 9), (9, 4)])
@pytest.mark.parametrize("T", [0, 3, None])
def test_a_stack_is_its_matrices_one_by_one(d: tuple[int, int], T: int | None) -> None:
    G = randn(3, 2, *d)
    stacked = lmo_spectral(G, T)
    assert stacked.shape == G.shape
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(stacked[i, j], lmo_spectral(G[i, j], T), atol=1e-12, rtol=0)


def test_a_stack_with_a_zero_matrix_keeps_the_others() -> None:
    G = randn(2, 3, 4)
    G[0] = 0
    for T in (0, 5, None):
        result = lmo_spectral(G, T)
        assert (result[0] == 0).all()
        torch.testing.assert_close(result[1], lmo_spectral(G[1], T))


@given(spectra(), st.integers(0, 12))
def test_singular_values_stay_below_one_and_never_fall_with_T(spectrum: tuple[Tensor, int, int, int], T: int) -> None:
    s, d1, d2, seed = spectrum
    G = with_singular_values(s, d1, d2, seed)
    less, more = (torch.linalg.svdvals(newton_schulz(G, t)) for t in (T, T + 1))
    assert more.max() <= 1 + 1e-12
    assert (more >= less - 1e-12).all()


@given(spectra(), st.integers(0, 8))
def test_the_inner_product_is_at_least_theorem_3s_schatten_norm(spectrum: tuple[Tensor, int, int, int], T: int) -> None:
    s, d1, d2, seed = spectrum
    G = with_singular_values(s, d1, d2, seed)
    p = theorem_3s_p(float(s.min() / s.norm()), T)
    inner = float((G * newton_schulz(G, T)).sum())
    assert schatten(s, p) * (1 - 1e-9) <= inner <= float(s.sum()) * (1 + 1e-9)


@given(spectra())
def test_every_oracle_attains_the_dual_norm(spectrum: tuple[Tensor, int, int, int]) -> None:
    G = with_singular_values(*spectrum)
    s = torch.linalg.svdvals(G)
    relevant = s[s > 1e-12 * s.max()]
    for D, dual in ((lmo_spectral(G, None), relevant.sum()), (lmo_euclidean(G), G.norm()), (lmo_max(G), G.abs().sum())):
        torch.testing.assert_close((G * D).sum(), -dual)


def test_T_0_is_the_normalised_gradient() -> None:
    G = randn(4, 6)
    torch.testing.assert_close(lmo_spectral(G, 0), -G / G.norm())


@pytest.mark.parametrize("lmo", [lmo_euclidean, lmo_max, *(lambda G, T=T: lmo_spectral(G, T) for T in (0, 5, None))])
def test_the_oracle_of_zero_is_zero(lmo: object) -> None:
    assert (lmo(torch.zeros(3, 5)) == 0).all()  # type: ignore[operator]


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
@pytest.mark.parametrize("T", [0, 5, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scale_does_not_matter(scale: float, T: int | None, dtype: torch.dtype) -> None:
    G = randn(6, 25).to(dtype)
    scaled = (G.double() * scale).to(dtype)  # its own rounding is at most eps
    tolerance = 40 * torch.finfo(dtype).eps
    torch.testing.assert_close(lmo_spectral(scaled, T), lmo_spectral(G, T), atol=tolerance, rtol=0)


@pytest.mark.parametrize("T", [1, 5, None])
def test_a_rank_one_matrix_gives_its_two_directions(T: int | None) -> None:
    u, v = randn(6, 1), randn(9, 1, seed=1)
    expected = -(u / u.norm()) @ (v / v.norm()).mT
    torch.testing.assert_close(lmo_spectral((u @ v.mT).float(), T), expected.float(), atol=1e-6, rtol=0)


def test_the_exact_oracle_puts_nothing_on_the_noise_of_a_softmax_heads_gradient() -> None:
    scores, features = randn(64, 10).float(), randn(64, 84, seed=1).float()
    labels = torch.arange(64) % 10
    errors = torch.softmax(scores, 1) - torch.nn.functional.one_hot(labels, 10)
    gradient = errors.T @ features / 64  # the columns of errors sum to 0: rank 9
    ones = torch.ones(10) / 10**0.5
    assert torch.linalg.svdvals(gradient)[9] < 1e-6
    assert (ones @ lmo_spectral(gradient, None)).norm() < 1e-5
    assert (ones @ lmo_spectral(gradient, 5)).norm() < 1e-4
    U, _, Vh = torch.linalg.svd(gradient, full_matrices=False)
    assert (ones @ (U @ Vh)).norm() > 0.99  # what the cut is for


def test_the_step_scales() -> None:
    assert SCALES["moonlight"](100, 400) == pytest.approx(4.0)
    assert SCALES["jordan"](100, 400) == 1.0
    assert SCALES["jordan"](400, 100) == 2.0
    assert SCALES["ratio"](100, 400) == 0.5
    assert SCALES["one"](100, 400) == 1.0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("lmo", [lmo_euclidean, lmo_max, *(lambda G, T=T: lmo_spectral(G, T) for T in (0, 5, None))])
def test_what_is_not_finite_does_not_come_out_finite(lmo: Callable[[Tensor], Tensor], bad: float) -> None:
    G = torch.ones(2, 3, 4)
    G[1, 2, 1] = bad
    D = lmo(G)
    assert D[0].isfinite().all()
    assert not D[1].isfinite().all()
