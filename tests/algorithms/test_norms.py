import pytest
import torch

from fedmuon_app.algorithms.newton_schulz import newton_schulz
from fedmuon_app.algorithms.norms import exponent, schatten, theorem_norm


def gaussian(seed: int) -> torch.Tensor:
    return torch.randn(5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_schattens_norms_are_the_known_ones() -> None:
    G = gaussian(0)
    assert float(schatten(G, 1)) == pytest.approx(float(torch.linalg.matrix_norm(G, "nuc")))
    assert float(schatten(G, 2)) == pytest.approx(float(torch.linalg.matrix_norm(G, "fro")))


@pytest.mark.parametrize("T", range(8))
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_a_matrixs_own_norm_is_one_that_its_iterations_reach(T: int, rank: int) -> None:
    U, s, Vh = torch.linalg.svd(gaussian(T), full_matrices=False)
    G = (U[:, :rank] * s[:rank]) @ Vh[:rank]
    norm = float(theorem_norm(G, T))
    assert norm <= float((G * newton_schulz(G, T)).sum()) * (1 + 1e-9)
    p = exponent(float(s[rank - 1] / s[:rank].norm()), T)  # noise in the other singular values has no say
    assert norm == pytest.approx(float((s[:rank] ** p).sum() ** (1 / p)))


def test_the_exact_oracles_norm_is_the_trace_norm_and_zero_has_none() -> None:
    assert float(theorem_norm(gaussian(1), None)) == pytest.approx(float(torch.linalg.matrix_norm(gaussian(1), "nuc")))
    assert float(theorem_norm(torch.zeros(3, 4), 5)) == 0.0


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_theorems_norm_scales_without_overflow(scale: float) -> None:
    G = torch.diag(torch.tensor([1.0, 0.5, 0.01]))
    assert float(theorem_norm(scale * G, 5)) == pytest.approx(scale * float(theorem_norm(G, 5)), rel=1e-5)
