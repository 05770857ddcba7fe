import pytest

from fedmuon_app.theory.speedup import play


@pytest.mark.slow
def test_where_noise_dominates_nR_decides() -> None:
    norms = {(n, nR): play(n, nR // n) for n in (1, 4, 16) for nR in (1024, 4096)}
    for nR in (1024, 4096):
        alone = norms[1, nR]
        assert all(abs(norms[n, nR] / alone - 1) < 0.15 for n in (4, 16))
    assert all(norms[n, 4096] < 0.8 * norms[n, 1024] for n in (1, 4, 16))
    assert play(16, 1024) < 0.8 * play(1, 1024)  # the same rounds, more clients
