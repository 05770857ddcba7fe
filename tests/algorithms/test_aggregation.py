import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from fedmuon_app.algorithms.aggregation import median, multi_krum, trimmed_mean
from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.server import CACHED


def rows(k: int, d: int, seed: int = 0) -> list[torch.Tensor]:
    return list(torch.randn(k, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@given(st.integers(1, 12), st.integers(0, 7), st.integers(0, 1000))
def test_the_trimmed_mean_is_scipys(k: int, f: int, seed: int) -> None:
    cut = min(f, (k - 1) // 2)
    given = rows(k, 17, seed)
    expected = trim_mean(torch.stack(given).numpy(), (cut + 1e-9) / k, axis=0)
    np.testing.assert_allclose(trimmed_mean(given, f).numpy(), expected, rtol=1e-12, atol=1e-14)


@given(st.integers(1, 12), st.integers(0, 1000))
def test_the_median_is_numpys(k: int, seed: int) -> None:
    given = rows(k, 17, seed)
    np.testing.assert_allclose(median(given).numpy(), np.median(torch.stack(given).numpy(), axis=0), rtol=1e-12)


def test_long_vectors_are_taken_in_parts() -> None:
    given = rows(5, CACHED * 2 + 3)
    np.testing.assert_allclose(median(given).numpy(), np.median(torch.stack(given).numpy(), axis=0), rtol=1e-12)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e30])
@pytest.mark.parametrize("f", [1, 2])
def test_what_f_of_five_send_cannot_leave_the_others_range(size: float, f: int) -> None:
    honest = rows(5 - f, 9)
    bent = trimmed_mean([*honest, *[torch.full((9,), size, dtype=torch.float64)] * f], f)
    assert (bent <= torch.stack(honest).amax(0)).all()
    assert (bent >= torch.stack(honest).amin(0)).all()


def updates(k: int, d: int = 11) -> tuple[dict[int, Update], torch.Tensor]:
    X, given = torch.randn(d, dtype=torch.float64), rows(2 * k, d)
    return {i: Update(X + given[i], given[k + i], 0.0) for i in range(k)}, X


@pytest.mark.parametrize(("k", "f"), [(5, 1), (8, 2), (9, 3), (3, 1)])
def test_multi_krum_is_the_definition(k: int, f: int) -> None:
    them, X = updates(k)

    def share(a: Update, b: Update, name: str) -> float:
        def one(u: Update, v: Update) -> float:
            return float((getattr(u, name) - getattr(v, name)).square().sum())

        pairs = [one(them[i], them[j]) for i, j in itertools.combinations(them, 2)]
        return one(a, b) / (sum(pairs) / len(pairs))

    score = {}
    for i in them:
        near = sorted(share(them[i], them[j], "X") + share(them[i], them[j], "dC") for j in them if j != i)
        score[i] = sum(near[: max(1, k - f - 2)])
    expected = sorted(sorted(them, key=lambda i: score[i])[: k - f])
    assert multi_krum(them, X, f) == expected


@pytest.mark.parametrize("name", ["X", "dC"])
def test_multi_krum_leaves_out_who_is_far_away_in_either(name: str) -> None:
    them, X = updates(8)
    for i in (2, 5):
        far = {"X": them[i].X, "dC": them[i].dC} | {name: them[i].dC * 50 + X}
        them[i] = Update(far["X"], far["dC"], 0.0)
    assert multi_krum(them, X, 2) == [0, 1, 3, 4, 6, 7]


def test_a_method_without_a_control_is_chosen_by_X_alone() -> None:
    them, X = updates(6)
    them = {i: Update(u.X, u.dC[:0], 0.0) for i, u in them.items()}
    them[4] = Update(X + 100, them[4].dC, 0.0)
    assert multi_krum(them, X, 1) == [0, 1, 2, 3, 5]
