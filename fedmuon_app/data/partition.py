"""Which client holds which example: flwr-datasets' partitioners, on the labels alone."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fedmuon_app.data.examples import Indices
from fedmuon_app.errors import InputError

Partitioner = Callable[[int], Any]
"""Number of clients to a partitioner of flwr-datasets."""


def partitioner(name: str, beta: float, classes_per_client: int, shards_per_client: int, seed: int) -> Partitioner:
    """The partitioner of a name.

    Args:
        name: ``dirichlet`` (Hsu et al. 2019: each class is dealt by a draw from Dir(β)), ``iid``, ``shard``
            (McMahan et al. 2017: sorted by label, cut, dealt), or ``pathological`` (each client has so many
            classes).
        beta: β > 0 of dirichlet; small is heterogeneous. A client may get nothing at all.
        classes_per_client: of pathological.
        shards_per_client: of shard.
        seed: of the random choices.
    """
    from flwr_datasets import partitioner as flower

    partitioners: dict[str, Partitioner] = {
        "dirichlet": functools.partial(
            flower.DirichletPartitioner, partition_by="label", alpha=beta, min_partition_size=0, seed=seed
        ),
        "iid": flower.IidPartitioner,
        "shard": functools.partial(
            flower.ShardPartitioner, partition_by="label", num_shards_per_partition=shards_per_client, seed=seed
        ),
        "pathological": functools.partial(
            flower.PathologicalPartitioner,
            partition_by="label",
            num_classes_per_partition=classes_per_client,
            class_assignment_mode="first-deterministic",
            seed=seed,
        ),
    }
    return partitioners[name]


def partition(labels: Indices, n: int, make: Partitioner, seed: int) -> list[Indices]:
    """Deal the examples to ``n`` clients.

    Args:
        labels: int64[N].
        n: the number of clients.
        make: from :func:`partitioner`.
        seed: the order in which examples are dealt.

    Returns:
        For each client the sorted indices of its examples; every example is dealt at most once.

    Raises:
        InputError: this partitioner cannot deal these labels to n clients.
    """
    from datasets import Dataset

    order = np.random.default_rng(seed).permutation(len(labels))
    dealer = make(n)
    try:
        dealer.dataset = Dataset.from_dict({"index": order, "label": labels[order]})
        parts = [np.asarray(dealer.load_partition(i)["index"], dtype=np.int64) for i in range(n)]
    except ValueError as error:
        raise InputError(f"partition: {len(labels)} examples cannot be dealt to {n} clients ({error})") from error
    return [np.sort(part) for part in parts]
