"""Rows of numbers and words, and texts: from files, without a download."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmuon_app.data.examples import Data, Examples, Indices, held_out
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import rng

HOLD_OUT = 0.2  # of a table's rows
TAIL = 0.1  # of each text: what is tested on comes after what is trained on
MOST_WORDS = 100  # different words of a column that become a number each


def table(path: str | Path | None, target: str | None, seed: int, quantities: bool) -> Data:
    """A CSV file, or a folder with train.csv and test.csv, as float32[N, features].

    Columns of numbers are brought to mean 0 and deviation 1 of the training rows, a missing one to their mean; a column
    of words becomes 0 or 1 for each of its words, if they are no more than MOST_WORDS, or half of the rows. Of a
    single file a fifth is held out.

    Args:
        path: the file, or the folder.
        target: the column that is to be predicted.
        seed: decides what is held out.
        quantities: the target is a number, and not one of several classes.

    Raises:
        InputError: the file or the column is not there, or the target is none.
    """
    rows, train, test = _rows(path, seed)
    if target not in rows.columns:
        raise InputError(f"dataset.target = {target}: {path} has columns {', '.join(map(str, rows.columns))}")
    if missing := int(rows[target].isna().sum()):
        raise InputError(f"dataset.target = {target}: {missing} rows of {path} lack it")
    known = [numbers for c in rows.columns.drop(target) if (numbers := _numbers(rows[c], train)) is not None]
    if not known:
        raise InputError(f"dataset.path = {path}: beside {target} it has no column of numbers, or of few words")
    x = torch.from_numpy(np.ascontiguousarray(np.concatenate(known, 1)))
    y, names = _target(rows[target], quantities)
    words = {str(c): rows[c].astype(str).to_numpy()[train].tolist() for c in rows.columns}
    parts = [Examples(x[index], y[index]) for index in (torch.from_numpy(train), torch.from_numpy(test))]
    return Data(parts[0], parts[1], names, columns=words)


def _rows(path: str | Path | None, seed: int) -> tuple[Any, Indices, Indices]:
    """All rows of the table, and which of them are for training and for the test."""
    import pandas as pd  # a second to import, which other data sets go without

    place = _place(path, "a CSV file, or a folder with train.csv and test.csv")
    try:
        if place.is_dir():
            parts = [pd.read_csv(place / f"{name}.csv") for name in ("train", "test")]
            rows = pd.concat(parts, ignore_index=True)
            return rows, np.arange(len(parts[0])), np.arange(len(parts[0]), len(rows))
        rows = pd.read_csv(place)
    except (OSError, ValueError) as error:
        raise InputError(f"dataset.path = {place} cannot be read as CSV ({error})") from error
    return rows, *held_out(len(rows), HOLD_OUT, rng(seed, "hold out"))


def _numbers(column: Any, train: Indices) -> NDArray[np.float32] | None:
    """A column as float32[N, …]; None: it has too many words."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column):
        known = column.iloc[train].astype(float)
        scaled = (column.astype(float) - known.mean()) / (known.std() or 1.0)
        numbers: NDArray[np.float32] = scaled.fillna(0.0).to_numpy(np.float32)[:, None]
        return numbers
    if column.nunique() > min(MOST_WORDS, len(column) / 2):  # more are names
        return None
    words: NDArray[np.float32] = pd.get_dummies(column, dtype=np.float32).to_numpy()
    return words


def _target(column: Any, quantities: bool) -> tuple[Tensor, list[str]]:
    """What is to be predicted, and its names."""
    import pandas as pd

    if not quantities:
        codes, found = pd.factorize(column, sort=True)
        return torch.from_numpy(codes.astype(np.int64)), [str(name) for name in found]
    if not pd.api.types.is_numeric_dtype(column):
        raise InputError(f"dataset.target = {column.name}: is no column of numbers; task=classification takes words")
    return torch.tensor(column.to_numpy(np.float32))[:, None], [str(column.name)]


def text(path: str | Path | None, length: int) -> Data:
    """A text file, or a folder of one .txt file a client, as characters int64[N, length], and their successors.

    The last tenth of each text is tested on. The column ``file`` says which file an example is from.

    Args:
        path: the file, or the folder.
        length: characters of an example; what is left of a text below that is passed over.

    Raises:
        InputError: there is no file, or none is long enough.
    """
    place = _place(path, "a text file, or a folder of one .txt file a client")
    files = sorted(place.glob("*.txt")) if place.is_dir() else [place]
    try:
        texts = [file.read_text(encoding="utf-8") for file in files]
    except (OSError, ValueError) as error:
        raise InputError(f"dataset.path = {path} cannot be read as UTF-8 text ({error})") from error
    characters = sorted(set("".join(texts)))
    number = {character: k for k, character in enumerate(characters)}
    train, test, names = [], [], []
    for file, words in zip(files, texts, strict=True):
        tokens = torch.tensor([number[character] for character in words], dtype=torch.int64)
        cut = round((1 - TAIL) * len(tokens))
        own = _windows(tokens[:cut], length)
        train.append(own)
        test.append(_windows(tokens[cut:], length))
        names += [file.stem] * len(own)
    if not names or not sum(map(len, test)):
        raise InputError(f"dataset.path = {path}: no text there is long enough for dataset.length = {length}")
    parts = [Examples(both[:, :-1].contiguous(), both[:, 1:].contiguous()) for both in map(torch.cat, (train, test))]
    return Data(parts[0], parts[1], characters, columns={"file": names})


def _place(path: str | Path | None, what: str) -> Path:
    """``dataset.path``, which may begin with ~.

    Raises:
        InputError: nothing is there; ``what`` is needed.
    """
    place = None if path is None else Path(path).expanduser()
    if place is None or not place.exists():
        raise InputError(f"dataset.path = {path}: must be {what}")
    return place


def _windows(tokens: Tensor, length: int) -> Tensor:
    """Pieces of length + 1 tokens, each beginning with the last one's end: int64[N, length + 1]."""
    if len(tokens) <= length:
        return tokens.new_empty(0, length + 1)
    return tokens.unfold(0, length + 1, length).clone()
