import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmuon_app.algorithms.newton_schulz import QUINTIC, newton_schulz
from fedmuon_app.algorithms.norms import exponent, schatten
from fedmuon_app.theory.theorem_3 import measure


@given(st.integers(0, 8), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**6), st.floats(0.01, 100.0))
def test_the_proofs_inequality(T: int, d1: int, d2: int, seed: int, spread: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    G = torch.randn(d1, d2, generator=draw, dtype=torch.float64) ** 3 * spread
    s = torch.linalg.svdvals(G)
    kappa = float(s[-1] / s.norm())
    inner = float((G * newton_schulz(G, T, QUINTIC)).sum())
    for rate in (1.5, 15 / 8):
        assert inner >= float(schatten(G, exponent(kappa, T, rate))) * (1 - 1e-9)
    assert inner <= float(s.sum()) * (1 + 1e-9)


def test_p_at_its_ends() -> None:
    assert exponent(1e-3, 0) == pytest.approx(2.0)
    assert exponent(0.5, 20) == pytest.approx(1.0)
    assert (exponent(1.0, 0), exponent(1.0, 3)) == (2.0, 1.0)
    p = [exponent(1e-2, T) for T in range(6)]
    assert p == pytest.approx([2, 1.91, 1.83, 1.74, 1.65, 1.57], abs=0.006)  # worked out by hand from the definition
    assert all(math.isfinite(exponent(1e-300, T)) for T in range(9))


@pytest.mark.slow
def test_fedmuon_converges_for_every_T_and_more_iterations_align_better() -> None:
    trials = measure()
    assert [t.T for t in trials] == list(range(9))
    for t in trials:
        assert max(t.norms[-20:]) < 0.1 * t.norms[0]
        assert t.slack >= 1 - 1e-9
        assert 1 <= t.p <= 2
    alignment = [t.alignment for t in trials]
    assert alignment == sorted(alignment)
    assert alignment[0] < 0.8
    assert alignment[-1] > 0.99
