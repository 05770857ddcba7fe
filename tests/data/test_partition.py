from pathlib import Path

import numpy as np
import pytest

from fedmuon_app.data.examples import Indices
from fedmuon_app.data.partition import Deal, partition
from fedmuon_app.errors import InputError

LABELS = np.arange(3000) % 10


def deal(name: str, n: int = 10, beta: float = 0.5, seed: int = 0, labels: Indices = LABELS) -> list[Indices]:
    return partition(labels, n, Deal(name, beta, 2, 2), seed)


@pytest.mark.parametrize("name", ["dirichlet", "iid", "shard", "pathological"])
def test_every_example_goes_to_one_client_and_the_seed_decides(name: str) -> None:
    parts = deal(name)
    assert len(parts) == 10
    assert sorted(np.concatenate(parts).tolist()) == list(range(3000))
    assert all((a == b).all() for a, b in zip(parts, deal(name), strict=True))
    assert any(a.tolist() != b.tolist() for a, b in zip(parts, deal(name, seed=1), strict=True))


def shares(parts: list[Indices]) -> np.ndarray:
    return np.array([np.bincount(LABELS[part], minlength=10) for part in parts]) / 300


def test_small_beta_is_heterogeneous_and_large_beta_is_not() -> None:
    assert shares(deal("dirichlet", beta=0.05)).max(axis=0).mean() > 0.6  # most of a class is at one client
    assert shares(deal("dirichlet", beta=1000)).max(axis=0).mean() < 0.15


def test_iid_clients_have_all_classes() -> None:
    assert (shares(deal("iid")) > 0).all()


@pytest.mark.parametrize("name", ["shard", "pathological"])
def test_two_shards_or_two_classes_a_client(name: str) -> None:
    assert ((shares(deal(name)) > 0).sum(axis=1) <= 3).all()  # a shard may lie across two classes


def test_many_clients_may_be_left_without_data() -> None:
    assert min(len(part) for part in deal("dirichlet", n=500, beta=0.1)) == 0


def test_what_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be dealt to 5 clients"):
        partition(LABELS, 5, Deal("pathological", 0.1, 20, 2), 0)  # 20 of 10 classes


def test_more_clients_than_examples_leave_some_without() -> None:
    assert sorted(map(len, deal("iid", n=50, labels=LABELS[:20]))) == [0] * 30 + [1] * 20


def test_a_cached_partition_is_the_same_and_a_broken_one_is_dealt_again(tmp_path: Path) -> None:
    expected = deal("dirichlet", n=50, beta=0.05)
    assert min(map(len, expected)) == 0

    def cached() -> list[Indices]:
        return partition(LABELS, 50, Deal("dirichlet", 0.05, 2, 2), 0, tmp_path / "cache")

    for _ in range(2):
        assert all((a == b).all() for a, b in zip(cached(), expected, strict=True))
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert all((a == b).all() for a, b in zip(cached(), expected, strict=True))


def test_another_partition_has_another_place_in_the_cache(tmp_path: Path) -> None:
    for beta, seed in ((0.1, 0), (0.2, 0), (0.1, 1)):
        partition(LABELS, 4, Deal("dirichlet", beta, 2, 2), seed, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
