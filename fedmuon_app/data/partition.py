"""Which client holds which example: flwr-datasets' partitioners, on the labels alone."""

import hashlib
import io
import logging
import os
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fedmuon_app.data.examples import Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed

log = logging.getLogger("fedmuon")


@dataclass(frozen=True)
class PartitionSpec:
    """How examples are dealt.

    Attributes:
        name: ``dirichlet`` (Hsu et al. 2019, whom the paper follows: each client draws its mix of classes from
            Dir(β), and all have the same number of examples), ``dirichlet_by_class`` (Yurochkin et al. 2019: each
            class is dealt over the clients by a draw from Dir(β), so sizes differ, and a client may get nothing at
            all), ``iid``, ``shard`` (McMahan et al. 2017: sorted by label, cut, dealt), or ``pathological`` (each
            client has so many classes), or ``column`` (each value is a client's).
        beta: β > 0 of both Dirichlet splits; small is heterogeneous.
        classes_per_client: of pathological.
        shards_per_client: of shard.
    """

    name: str
    beta: float
    classes_per_client: int
    shards_per_client: int
    column: str | None = None


def partition(labels: Indices, n: int, deal: PartitionSpec, seed: int, cache: Path | None = None) -> list[Indices]:
    """Deal the examples to ``n`` clients.

    Args:
        labels: int64[N]; of a column the number of each value.
        n: the number of clients.
        deal: how.
        seed: of the run.
        cache: folder in which a partition is kept for the next process that asks for the same one: the
            partitioner's imports alone take seconds.

    Returns:
        For each client the sorted indices of its examples; every example is dealt at most once.

    Raises:
        InputError: this partitioner cannot deal these labels to n clients.
    """
    if cache is None:
        return _dealt(labels, n, deal, seed)
    key = f"{deal} {n} {seed} {metadata.version('flwr-datasets')} {np.__version__}".encode() + labels.tobytes()
    file = cache / f"{hashlib.sha256(key).hexdigest()[:32]}.npz"
    try:
        with np.load(file) as stored:
            return np.split(stored["indices"], stored["ends"])
    except (OSError, EOFError, KeyError, ValueError, BadZipFile):  # not there, or not whole
        parts = _dealt(labels, n, deal, seed)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(new, indices=np.concatenate(parts), ends=np.cumsum([len(part) for part in parts])[:-1])
        os.replace(new, file)
    except OSError as error:
        log.warning("the partition cannot be kept in %s for the next run: %s", cache, error)
    return parts


def _dealt(labels: Indices, n: int, deal: PartitionSpec, seed: int) -> list[Indices]:
    from datasets import Dataset

    class Positions(Dataset):  # type: ignore[misc]  # datasets has no types
        """Gives the positions that are selected, at a hundredth of the cost of a data set of them."""

        def select(self, indices: Any, *_: Any, **__: Any) -> Any:
            return np.asarray(indices, dtype=np.int64)

    order = np.random.default_rng(integer_seed(seed, "order of examples")).permutation(len(labels))
    labels = np.unique(labels, return_inverse=True)[1]  # a class without examples is none to a partitioner
    most = min(n, len(labels)) if deal.name == "dirichlet" else n  # the clients that get anything
    dealer = _partitioner(deal, most, len(labels), integer_seed(seed, "partition"))
    try:
        if deal.name == "shard":  # sorts the data set itself
            dealer.dataset = Dataset.from_dict({"index": order, "label": labels[order]})
            parts = [np.asarray(dealer.load_partition(i)["index"], dtype=np.int64) for i in range(n)]
        else:
            dealer.dataset = Positions.from_dict({"label": labels[order]})
            # a NaN is said by the error that follows; natural ids are dealt with a bar of their own
            with np.errstate(invalid="ignore"), redirect_stderr(io.StringIO()):
                parts = [order[dealer.load_partition(i)] for i in range(most)]
    except (ValueError, IndexError) as error:
        small = f"; partition.beta = {deal.beta} is too small for it" if "NaN" in str(error) else ""
        raise InputError(
            f"partition = {deal.name}: {len(labels)} examples cannot be dealt to {n} clients ({error}{small})"
        ) from error
    return [np.sort(part) for part in parts] + [np.empty(0, np.int64)] * (n - len(parts))


def _partitioner(deal: PartitionSpec, n: int, examples: int, seed: int) -> Any:
    from flwr_datasets import partitioner as flower

    if deal.name == "column":
        return flower.NaturalIdPartitioner(partition_by="label")
    if deal.name == "iid":
        return flower.IidPartitioner(n)
    by_label = {"num_partitions": n, "partition_by": "label", "seed": seed}
    if deal.name == "dirichlet":
        sizes = [examples // n + (i < examples % n) for i in range(n)]
        return flower.InnerDirichletPartitioner(sizes, "label", deal.beta, seed=seed)
    if deal.name == "dirichlet_by_class":
        return flower.DirichletPartitioner(alpha=deal.beta, min_partition_size=0, **by_label)
    if deal.name == "shard":
        return flower.ShardPartitioner(num_shards_per_partition=deal.shards_per_client, **by_label)
    return flower.PathologicalPartitioner(
        num_classes_per_partition=deal.classes_per_client, class_assignment_mode="first-deterministic", **by_label
    )
