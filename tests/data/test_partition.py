import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr_datasets.partitioner import Partitioner

from fedmuon_app import data_of
from fedmuon_app.config import load, names
from fedmuon_app.data import store
from fedmuon_app.data.examples import Examples, Indices
from fedmuon_app.errors import InputError

LABELS = np.arange(3000) % 10
DEALT = [name for name in names("partition") if name not in ("own", "custom")]


def deal(
    name: str, n: int = 10, beta: float = 0.5, seed: int = 0, labels: Indices = LABELS, words: Sequence[str] = ()
) -> list[Indices]:
    c = load([
        f"partition={name}", f"partition.beta={beta}", f"seed={seed}", f"federation.num_clients={n}",
        "federation.clients_per_round=1", *(["partition.column=words"] if name == "column" else []), *words,
    ])  # fmt: skip
    columns = {"words": [f"word {y}" for y in labels], "half": ["left" if y < 5 else "right" for y in labels]}
    return data_of.deal(c, Examples(torch.zeros(len(labels), 1), torch.from_numpy(labels)), columns)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path) -> Iterator[None]:
    store.keep_in(tmp_path / "cache")
    yield
    store.keep_in(None)


@pytest.mark.parametrize("name", DEALT)
def test_every_example_goes_to_one_client_and_the_seed_decides(name: str) -> None:
    parts = deal(name)
    assert len(parts) == 10
    assert sorted(np.concatenate(parts).tolist()) == list(range(3000))
    assert all((a == b).all() for a, b in zip(parts, deal(name), strict=True))
    moved = any(a.tolist() != b.tolist() for a, b in zip(parts, deal(name, seed=1), strict=True))
    assert moved == (name != "column")  # whose values decide


def shares(parts: list[Indices]) -> np.ndarray:
    return np.array([np.bincount(LABELS[part], minlength=10) for part in parts]) / 300


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet_by_class"])
def test_small_beta_is_heterogeneous_and_large_beta_is_not(name: str) -> None:
    assert shares(deal(name, beta=0.05)).max(axis=0).mean() > 0.45  # much of a class is at one client
    assert shares(deal(name, beta=1000)).max(axis=0).mean() < 0.15


@pytest.mark.parametrize("n", [1, 7, 16])
def test_the_papers_split_gives_all_clients_as_many_examples_and_the_other_does_not(n: int) -> None:
    sizes = [len(part) for part in deal("dirichlet", n, beta=0.1)]
    assert max(sizes) - min(sizes) <= 1
    by_class = [len(part) for part in deal("dirichlet_by_class", n, beta=0.1)]
    assert n == 1 or max(by_class) > 2 * min(by_class)


def test_a_clients_mix_of_classes_is_dirichlets() -> None:
    """While no class runs out: E Σ s² of a draw s from Dir(β) over k classes is (β + 1)/(kβ + 1)."""
    labels = np.arange(200_000) % 10
    beta, squares = 1.0, []
    for seed in range(3):
        parts = deal("dirichlet", 400, beta, seed, labels)
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        squares.append(((counts / counts.sum(1, keepdims=True)) ** 2).sum(1).mean())
    assert np.mean(squares) == pytest.approx((beta + 1) / (10 * beta + 1), rel=0.05)


def test_classes_without_examples_and_labels_with_gaps_are_dealt() -> None:
    labels = np.array([2, 7, 7, 9] * 30)
    parts = deal("dirichlet", 4, labels=labels)
    assert sorted(np.concatenate(parts).tolist()) == list(range(120))


def test_a_beta_so_small_that_a_clients_classes_run_out_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition\.beta = 0\.001 is too small"):
        deal("dirichlet", beta=0.001)


def test_iid_clients_have_all_classes() -> None:
    assert (shares(deal("iid")) > 0).all()


@pytest.mark.parametrize("name", ["shard", "pathological"])
def test_two_shards_or_two_classes_a_client(name: str) -> None:
    assert ((shares(deal(name)) > 0).sum(axis=1) <= 3).all()  # a shard may lie across two classes


def test_many_clients_may_be_left_without_data() -> None:
    assert min(len(part) for part in deal("dirichlet_by_class", n=500, beta=0.1)) == 0


def test_what_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be dealt to 5 clients"):
        deal("pathological", 5, words=["partition.classes_per_client=20"])  # of 10


def test_more_clients_than_examples_leave_some_without() -> None:
    for name in ("iid", "dirichlet"):
        assert sorted(map(len, deal(name, n=50, labels=LABELS[:20]))) == [0] * 30 + [1] * 20


def test_a_cached_partition_is_the_same_and_a_broken_one_is_dealt_again(tmp_path: Path) -> None:
    cached = functools.partial(deal, "dirichlet_by_class", n=50, beta=0.05)
    expected = cached()
    assert min(map(len, expected)) == 0
    (file,) = (tmp_path / "cache" / "partitions").iterdir()
    assert all((a == b).all() for a, b in zip(cached(), expected, strict=True))
    whole = file.read_bytes()
    for broken in (whole[:100], b"", b"junk", whole[:-1]):
        file.write_bytes(broken)
        assert all((a == b).all() for a, b in zip(cached(), expected, strict=True))


def test_a_cache_that_cannot_be_written_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file" / "cache", Path("/proc/cache")):
        store.keep_in(cache)
        assert deal("iid", 4)
        assert "the partition cannot be kept in" in caplog.text


def test_another_partition_has_another_place_in_the_cache(tmp_path: Path) -> None:
    for beta, seed in ((0.1, 0), (0.2, 0), (0.1, 1)):
        deal("dirichlet", 4, beta, seed)
    assert len(list((tmp_path / "cache" / "partitions").iterdir())) == 3


def test_any_of_flowers_partitioners_by_any_column() -> None:
    linear = ["partition._target_=flwr_datasets.partitioner.LinearPartitioner"]
    assert [len(part) for part in deal("custom", 3, words=linear)] == [500, 1000, 1500]
    halves = deal("pathological", 2, words=["partition.args.partition_by=half", "partition.classes_per_client=1"])
    assert sorted(sorted({bool(LABELS[i] < 5) for i in part}) for part in halves) == [[False], [True]]


class Odd(Partitioner):
    """Somebody's own: example i goes to client i mod n; of ``twice`` to the next one too."""

    def __init__(self, num_partitions: int, examples: int, twice: bool = False) -> None:
        super().__init__()
        self._n, self._examples, self._twice = num_partitions, examples, twice

    @property
    def num_partitions(self) -> int:
        return self._n

    def load_partition(self, partition_id: int) -> Any:
        return self.dataset.select(range(0 if self._twice else partition_id, self._examples, self._n))


def test_a_partitioner_of_ones_own(tmp_path: Path) -> None:
    named = "partition._target_=tests.data.test_partition.Odd"
    parts = deal("custom", 7, words=[named])
    assert sorted(np.concatenate(parts).tolist()) == list(range(3000))
    assert sorted(map(len, parts)) == [428] * 3 + [429] * 4
    assert not (tmp_path / "cache").exists()  # the class may have changed when it is asked next
    with pytest.raises(InputError, match="partition = custom: it deals an example to two clients"):
        deal("custom", 7, words=[named, "+partition.args.twice=true"])
    with pytest.raises(InputError, match=r"cannot be dealt to 7 clients .*incorrect arguments"):
        deal("custom", 7, words=[named, "+partition.args.other=1"])
    with pytest.raises(InputError, match=r"partition\._target_ = nothing\.Here cannot be built"):
        deal("custom", 7, words=["partition._target_=nothing.Here"])


def test_a_column_with_another_number_of_values_than_there_are_clients_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition = column: it deals to 10 clients: federation\.num_clients=10"):
        deal("column", 7)
    with pytest.raises(InputError, match=r"partition\.column = ward: the data has words, half"):
        deal("column", 7, words=["partition.column=ward"])
