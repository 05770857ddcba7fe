"""From a configuration to the data: the server's, or one client's own, and what it is dealt by."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmuon_app.config import Config, build_target, loader
from fedmuon_app.data import pictures
from fedmuon_app.data.examples import Data, Indices, held_out
from fedmuon_app.data.own import as_data
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import rng

OWN = "own"  # the partition of clients that bring their data


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
        return as_data(build_target("dataset", loader(c)), name)
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


def dealt_by(c: Config, data: Data) -> Indices:
    """What the training examples are dealt by, int64[N]: their labels, or a column's words by number.

    Raises:
        InputError: they have no such labels or column.
    """
    if c.partition.name == "column":
        there, column = data.columns, str(c.partition.column)
        if column not in there:
            known = f"the data has {', '.join(there)}" if there else "the data has no columns"
            raise InputError(f"partition.column = {column}: {known}")
        words, numbers = np.unique(np.array(there[column]), return_inverse=True)
        if len(words) != c.federation.num_clients:
            raise InputError(
                f"partition.column = {column}: it has {len(words)} values, and each is a client: "
                f"federation.num_clients={len(words)}"
            )
        return numbers.astype(np.int64)
    targets = data.train.targets
    if targets.ndim > 1 and c.partition.name != "iid":
        raise InputError(
            f"partition = {c.partition.name}: these examples have no single label to be dealt by; take iid, or column"
        )
    return np.zeros(len(targets), np.int64) if targets.ndim > 1 else targets.numpy()
