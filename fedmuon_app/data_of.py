"""From a configuration to the data: the server's, or one client's own, and what it is dealt by."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np

from fedmuon_app.config import OWN, Config, build_target, with_args
from fedmuon_app.data import pictures, store
from fedmuon_app.data.examples import Data, Examples, Indices, held_out
from fedmuon_app.data.own import as_data
from fedmuon_app.data.partition import LABEL, kept, partition
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import rng


def load_data(c: Config) -> Data:
    """The data set that ``dataset`` names; with ``dataset.validation``, a part of its training set as the test.

    Raises:
        InputError: the data is not there, or nothing is left to train or to validate on.
    """
    data = load_source(c)
    if not c.dataset.validation:
        return data
    kept, held = held_out(len(data.train), c.dataset.validation, rng(c.seed, "validation"))
    if not len(kept) or not len(held):
        raise InputError(f"dataset.validation = {c.dataset.validation}: of {len(data.train)} examples none is left")
    columns = {name: [words[i] for i in kept] for name, words in data.columns.items()}
    return replace(data, train=data.train.subset(kept), test=data.train.subset(held), columns=columns)


def load_source(c: Config) -> Data:
    """The data set as it comes.

    Raises:
        InputError: it cannot be had, or is none.
    """
    if c.partition.name == OWN:
        return load_test(c)
    name = f"dataset._target_ = {c.dataset._target_}"
    if c.dataset.path is not None and not (path := Path(c.dataset.path).expanduser()).exists():
        raise InputError(f"dataset.path = {path} is not there: name what holds the data, or leave the key out")
    try:
        return as_data(build_target("dataset", with_args(c.dataset)), name)
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error})") from error


def load_test(c: Config) -> Data:
    """What the server of clients with own data has: pictures to test on, or nothing.

    Raises:
        InputError: nothing could judge X, or the pictures cannot be read.
    """
    path = c.dataset.path
    if c.dataset.name == "none" and path is not None:
        raise InputError(f"dataset.path = {path}: must be null with dataset = none; dataset=image_folder reads it")
    if path is None and c.evaluation.clients == "none":
        raise InputError(
            "dataset.path = null: name labelled pictures to test on (dataset=image_folder), or let the clients "
            "judge X (dataset=none dataset.client_validation=0.1 evaluation.clients=all)"
        )
    return pictures.test_folder(path, c.dataset.size, c.dataset.channels, c.dataset.classes)


def load_own_data(c: Config, folder: Path) -> Data:
    """The images of one client. Its class folders need not be all of ``dataset.classes``.

    Raises:
        InputError: the folder holds none of them, or a broken picture.
    """
    size, channels, classes = c.dataset.size, c.dataset.channels, c.dataset.classes or []
    examples = pictures.read_folder(folder, size, channels, classes, missing_ok=True)
    return Data(examples, examples.subset(np.arange(min(2, len(examples)))), classes, *pictures.folder_scale(channels))


def deal(c: Config, train: Examples, columns: Mapping[str, Sequence[str]]) -> list[Indices]:
    """The examples of each client, as ``partition`` deals them; kept in the cache, unless the code is somebody's own.

    Args:
        c: the configuration.
        train: the examples.
        columns: further words of each example, by column.

    Raises:
        InputError: they cannot be dealt so.
    """
    n, split = c.federation.num_clients, c.partition
    column = split.args.get("partition_by")
    values = dealt_by(split.name, column, train, columns)
    node = with_args(split)

    def now() -> list[Indices]:
        make = build_target("partition", node | {"_partial_": True})
        return partition(values, n, make, c.seed, split.name, column or LABEL)

    if not str(split._target_).startswith(("flwr_datasets.", "fedmuon_app.")):  # which may have changed since
        return now()
    key = f"{node} {n} {c.seed} {metadata.version('flwr-datasets')} {np.__version__}".encode() + values.tobytes()
    return kept(store.cache() / "partitions" / f"{hashlib.sha256(key).hexdigest()[:32]}.npz", now)


def dealt_by(name: str, column: str | None, train: Examples, there: Mapping[str, Sequence[str]]) -> Indices:
    """What the training examples are dealt by, int64[N]: their labels, the words of a column by number, or zeros.

    Args:
        name: of the split, for what is said.
        column: one of ``there``, or "label"; None: the split looks at nothing.
        train: the examples.
        there: their columns.

    Raises:
        InputError: the examples have no single label, or the column is not there.
    """
    if column is None:
        return np.zeros(len(train), np.int64)
    if column in there:
        return np.unique(np.array(there[column]), return_inverse=True)[1].astype(np.int64)
    if column != LABEL:
        known = f"the data has {', '.join(there)}" if there else "the data has no columns"
        raise InputError(f"partition.column = {column}: {known}")
    if train.targets.ndim > 1:
        raise InputError(f"partition = {name}: these examples have no single label to be dealt by; take iid, or column")
    return train.targets.numpy()
