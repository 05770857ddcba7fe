import pytest
import torch

from fedmuon_app.theory.theorem_1 import A, measure, table, walk

LINE = torch.ones(1, 1, dtype=torch.float64)
ETA = 2.0**-7


def matrices(seed: int = 1) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(5, 3, generator=draw, dtype=torch.float64))[0]


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("norm", ["spectral", "euclidean", "max"])
@pytest.mark.parametrize("method", ["localmuon", "muloco"])
def test_without_a_control_nothing_moves(method: str, alpha: float, norm: str) -> None:
    a = 4.0
    assert all(x.item() == -a / 4 for x in walk(method, a, LINE, 100, alpha, norm, ETA))


@pytest.mark.parametrize("eta", [2.0**-3, 2.0**-7, 2.0**-12])
@pytest.mark.parametrize("a", [1.0, 2.0, 16.0])
def test_whatever_the_step_and_the_distance(a: float, eta: float) -> None:
    assert all(x.item() == -a / 4 for x in walk("localmuon", a, LINE, 50, 0.1, eta=eta))


@pytest.mark.parametrize(("alpha", "cycle"), [(1.0, 2), (0.5, 2), (0.1, 5)])
@pytest.mark.parametrize("norm", ["spectral", "euclidean", "max"])
def test_fedmuon_reaches_the_optimum_up_to_its_limit_cycle(alpha: float, cycle: int, norm: str) -> None:
    a = 4.0
    path = walk("fedmuon", a, LINE, 1000, alpha, norm, ETA)
    assert max(abs(x.item() + a / 2) for x in path[-200:]) <= cycle * ETA


@pytest.mark.parametrize("method", ["localmuon", "muloco"])
def test_matrices_whose_lmos_cancel_stand_still_too(method: str) -> None:
    a, U = 4.0, matrices()
    assert all((X + a / 4 * U).abs().max() < 1e-13 for X in walk(method, a, U, 60))


def test_there_fedmuon_reaches_the_optimum() -> None:
    a, U = 4.0, matrices()
    assert all(torch.linalg.matrix_norm(X + a / 2 * U, ord=2) <= 2 * 2.0**-6 for X in walk("fedmuon", a, U, 150)[-40:])


def test_the_distance_grows_with_a_for_localmuon_alone() -> None:
    ends = {(row["method"], row["X"], row["a"]): row["end"] for row in table(measure(rounds=140))}
    for shape in ("1 × 1", "6 × 4"):
        for a in A:
            assert ends["localmuon", shape, a] == pytest.approx(a / 4, rel=1e-12)
            assert ends["muloco", shape, a] == pytest.approx(a / 4, rel=1e-12)
            assert ends["fedmuon", shape, a] <= 2 * 2.0**-6  # type: ignore[operator]
