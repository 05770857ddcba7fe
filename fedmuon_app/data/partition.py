"""Which client holds which example: flwr-datasets' partitioners, on one value an example."""

import inspect
import io
import logging
import os
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fedmuon_app.data.examples import Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed

log = logging.getLogger("fedmuon")

LABEL = "label"  # the column of the targets


def partition(
    values: Indices, n: int, make: Callable[..., Any], seed: int, name: str, column: str = LABEL
) -> list[Indices]:
    """Deal the examples to ``n`` clients.

    Args:
        values: int64[N], what they are dealt by: labels, or the number of each value of a column.
        n: the number of clients.
        make: gives one of flwr-datasets' partitioners, or anything with their ``dataset``, ``num_partitions`` and
            ``load_partition``; of the arguments ``num_partitions`` = n, ``examples`` = N and ``seed`` it gets the ones
            that it takes.
        seed: of the run.
        name: of the split, for what is said.
        column: the name that the partitioner has for ``values``.

    Returns:
        For each client the sorted indices of its examples; every example is dealt at most once.

    Raises:
        InputError: this partitioner cannot deal these examples to n clients.
    """
    from datasets import Dataset

    class Positions(Dataset):  # type: ignore[misc]  # datasets has no types
        """Gives the positions that are selected, at a hundredth of the cost of a data set of them."""

        def sort(self, *args: Any, **kwargs: Any) -> Any:  # which selects, and must not be answered with positions
            return Dataset.from_dict({key: self[key][:] for key in self.column_names}).sort(*args, **kwargs)

        def select(self, indices: Any, *_: Any, **__: Any) -> Any:
            return {"index": np.asarray(indices, dtype=np.int64)}

    order = np.random.default_rng(integer_seed(seed, "order of examples")).permutation(len(values))
    values = np.unique(values, return_inverse=True)[1]  # a class without examples is none to a partitioner
    offered = {"num_partitions": n, "examples": len(values), "seed": integer_seed(seed, "partition")}
    try:
        taken = inspect.signature(make).parameters
        dealer = make(**{key: value for key, value in offered.items() if key in taken})
        dealer.dataset = Positions.from_dict({"index": np.arange(len(values)), column: values[order]})
        # a NaN is said by the error that follows; natural ids are dealt with a bar of their own
        with np.errstate(invalid="ignore"), redirect_stderr(io.StringIO()):
            count = dealer.num_partitions
            parts = [order[np.asarray(dealer.load_partition(i)["index"], dtype=np.int64)] for i in range(min(count, n))]
    except Exception as error:  # whatever somebody's partitioner does
        beta = getattr(make, "keywords", {}).get("alpha")
        small = f"; partition.beta = {beta} is too small for it" if "NaN" in str(error) else ""
        raise InputError(
            f"partition = {name}: {len(values)} examples cannot be dealt to {n} clients ({error}{small})"
        ) from error
    if not min(n, len(values)) <= count <= n:
        raise InputError(f"partition = {name}: it deals to {count} clients: federation.num_clients={count}")
    dealt = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if len(np.unique(dealt)) < len(dealt):
        raise InputError(f"partition = {name}: it deals an example to two clients")
    return [np.sort(part) for part in parts] + [np.empty(0, np.int64)] * (n - count)


def dirichlet(num_partitions: int, examples: int, partition_by: str, alpha: float, seed: int) -> Any:
    """The paper's split (Hsu et al. 2019): each client draws its mix of classes from Dir(α), all have as many examples.

    Of more clients than examples, the last get none.
    """
    from flwr_datasets.partitioner import InnerDirichletPartitioner

    n = min(num_partitions, examples)
    sizes = [examples // n + (i < examples % n) for i in range(n)]
    return InnerDirichletPartitioner(sizes, partition_by, alpha, seed=seed)


def kept(file: Path, deal: Callable[[], list[Indices]]) -> list[Indices]:
    """What ``deal`` gives; from ``file`` where an earlier process has left it: partitioners' imports take seconds."""
    try:
        with np.load(file) as stored:
            return np.split(stored["indices"], stored["ends"])
    except (OSError, EOFError, KeyError, ValueError, BadZipFile):  # not there, or not whole
        parts = deal()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(new, indices=np.concatenate(parts), ends=np.cumsum([len(part) for part in parts])[:-1])
        os.replace(new, file)
    except OSError as error:
        log.warning("the partition cannot be kept in %s for the next run: %s", file.parent, error)
    return parts
