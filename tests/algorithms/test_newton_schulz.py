import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms import newton_schulz as module
from fedmuon_app.algorithms.newton_schulz import QUINTIC, gram, newton_schulz, normalised, plain

SHAPES = [(6, 25), (25, 6), (16, 150), (84, 120), (1, 7), (7, 1), (1, 1), (5, 5), (120, 400), (400, 120)]
LENET = [(6, 25), (16, 150), (120, 400), (84, 120), (10, 84)]
RESNET = [(64, 27), (64, 576), (128, 576), (128, 1152), (256, 2304), (512, 4608), (512, 256), (10, 512)]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def algorithm_2(G: Tensor, T: int) -> Tensor:
    """As printed in the paper, in float64, without transposing; the sign left out."""
    a, b, c = QUINTIC
    G = G.double()
    G = G / G.norm()
    for _ in range(T):
        S = G @ G.T
        G = a * G + b * S @ G + c * S @ S @ G
    return G


def error(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("T", [0, 1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_each_number_of_iterations_equals_the_printed_loop(
    shape: tuple[int, int], T: int, dtype: torch.dtype, tolerance: float
) -> None:
    G = randn(*shape, seed=T).to(dtype)
    result = newton_schulz(G, T)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), algorithm_2(G, T), atol=tolerance, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("T", [0, 1, 3, 5])
def test_bfloat16_is_near_the_float64_loop(shape: tuple[int, int], T: int) -> None:
    G = randn(*shape).bfloat16()
    result = newton_schulz(G, T)
    assert result.dtype == torch.bfloat16
    expected = algorithm_2(G, T)
    assert (result.double() - expected).norm() < 0.03 * expected.norm()  # 0.3 to 2.1 % were measured
    assert torch.linalg.matrix_norm(result.float(), 2) < 1.01


def conditioned(kappa: float, d1: int, d2: int) -> Tensor:
    """float32[d1, d2] with singular values from 1 down to 1/κ."""
    U, _, Vh = torch.linalg.svd(randn(d1, d2), full_matrices=False)
    s = torch.logspace(0, -torch.log10(torch.tensor(kappa)).item(), min(d1, d2), dtype=torch.float64)
    return ((U * s) @ Vh).float()


@pytest.mark.parametrize("shape", LENET + RESNET)
@pytest.mark.parametrize("T", [1, 5])
def test_float32_is_within_1e5_of_float64_for_the_layers_of_both_models(shape: tuple[int, int], T: int) -> None:
    G = randn(*shape).float()
    expected = algorithm_2(G, T) if shape[0] <= shape[1] else algorithm_2(G.T, T).T
    assert error(newton_schulz(G, T), expected) < 1e-5


@pytest.mark.parametrize("kappa", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("T", [2, 5, 6, 8, 10, 12, 20])
def test_the_gram_form_is_as_good_as_the_plain_loop_on_ill_conditioned_input(kappa: float, T: int) -> None:
    X = normalised(conditioned(kappa, 120, 400)[None])
    expected = plain(X.double(), T)
    assert error(gram(X, T), expected) < 3 * error(plain(X, T), expected)  # 1.1 to 2.3 times were measured


@pytest.mark.parametrize("T", range(1, 13))
def test_the_gram_form_is_the_plain_loop(T: int) -> None:
    X = normalised(randn(3, 12, 40))
    torch.testing.assert_close(gram(X, T), plain(X, T), atol=1e-12, rtol=0)


def test_segments() -> None:
    assert [list(module._segments(T)) for T in (0, 1, 5, 6, 12)] == [[], [1], [5], [5, 1], [5, 3, 3, 1]]


def test_the_form_is_chosen_by_shape_and_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for name, form in (("plain", plain), ("gram", gram)):
        monkeypatch.setattr(module, name, lambda X, T, c, name=name, form=form: used.append(name) or form(X, T, c))
    for G in (randn(32, 96), randn(96, 32), randn(32, 95), randn(31, 200), randn(32, 96).bfloat16()):
        newton_schulz(G, 2)
    assert used == ["gram", "gram", "plain", "plain", "plain"]


@pytest.mark.parametrize("rows", [64, 120])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_float32_stays_float32_and_torchs_precision_as_it_was(precision: str, rows: int) -> None:
    torch.set_float32_matmul_precision(precision)
    G = randn(rows, 300).float()
    assert error(newton_schulz(G, 5), algorithm_2(G, 5)) < 1e-5
    assert torch.get_float32_matmul_precision() == precision


@pytest.mark.gpu
@pytest.mark.parametrize("T", [0, 5, 8])
def test_a_gpu_gives_the_cpus_result(T: int) -> None:
    G = randn(4, 120, 400).float()
    torch.testing.assert_close(newton_schulz(G.cuda(), T).cpu(), newton_schulz(G, T), atol=1e-5, rtol=0)


def test_negative_T_is_refused() -> None:
    with pytest.raises(ValueError, match="T = -1"):
        newton_schulz(torch.ones(2, 2), -1)
