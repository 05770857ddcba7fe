"""Decoded images in a file: made once, for every run on this machine, and read as needed where they are many."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedmuon_app.data.examples import Examples, StoredImages

log = logging.getLogger("fedmuon")

Decoded = Iterator[tuple[NDArray[np.uint8], int]]
"""Images uint8[c, h, w], all of one shape, each with its label."""


_place: Path | None = None


def keep_in(folder: Path | None) -> None:
    """Let :func:`cache` be ``folder`` in this process; None: the user's own again."""
    global _place
    _place = folder


def cache() -> Path:
    """Where downloads go, and what is made once: partitions and decoded images."""
    if _place is not None:
        return _place
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "fedmuon"
    try:
        return Path.home() / ".cache" / "fedmuon"
    except RuntimeError:  # nobody's: a container with a user of its own
        return Path(tempfile.gettempdir()) / f"fedmuon-cache-{os.getuid()}"


IN_MEMORY = 2**28  # bytes of images that are read as a whole


def kept(key: str, decode: Callable[[], Decoded]) -> Examples:
    """What ``decode`` gives, from the cache where it is there.

    Where the cache cannot be written the images go to a file without a name, and where that cannot be had into memory.

    Args:
        key: all that the images depend on.
        decode: asked where they are not there; its errors are the caller's to see.
    """
    place = cache() / "images" / hashlib.sha256(key.encode()).hexdigest()[:32]
    found = _opened(place)
    if found is not None:
        return found
    try:
        return _written(place, decode)
    except _NoRoomError as error:
        log.warning("decoded images cannot be kept in %s for the next run: %s", place.parent, error)
    try:
        with tempfile.TemporaryFile() as stream:
            shape, labels = _write(stream, decode())
            return _read(os.dup(stream.fileno()), shape, labels)
    except (OSError, _NoRoomError) as error:
        log.warning("decoded images go to memory: %s", error)
        pairs = list(decode())
        return Examples(torch.from_numpy(np.stack([x for x, _ in pairs])), torch.tensor([y for _, y in pairs]))


class _NoRoomError(Exception):
    """A file cannot be written."""


def _written(place: Path, decode: Callable[[], Decoded]) -> Examples:
    """Decode into ``place``; there whole or not at all.

    Raises:
        _NoRoomError: it cannot be written.
    """
    with _writing():
        place.parent.mkdir(parents=True, exist_ok=True)
        stream = tempfile.NamedTemporaryFile(dir=place.parent, delete=False)  # noqa: SIM115 - closed below
    try:
        with stream:
            shape, labels = _write(stream, decode())
            about = {"shape": shape, "labels": labels}
        with _writing():
            new = Path(f"{stream.name}.json")
            new.write_text(json.dumps(about))
            os.replace(stream.name, place.with_suffix(".images"))
            os.replace(new, place.with_suffix(".json"))  # last: where it stands the images do
    finally:
        for left in (stream.name, f"{stream.name}.json"):
            with suppress(OSError):
                Path(left).unlink(missing_ok=True)
    found = _opened(place)
    if found is None:
        raise _NoRoomError("what was written there cannot be read")
    return found


def _write(stream: Any, rows: Iterable[tuple[NDArray[np.uint8], int]]) -> tuple[list[int], list[int]]:
    """Images one after the other into a file; their common shape [N, c, h, w], and the labels."""
    one: tuple[int, ...] = ()
    labels: list[int] = []
    for image, label in rows:
        one = image.shape
        with _writing():
            stream.write(np.ascontiguousarray(image).data)
        labels.append(label)
    with _writing():
        stream.flush()
    return [len(labels), *one], labels


@contextmanager
def _writing() -> Iterator[None]:
    """Tells an error of writing from one of decoding."""
    try:
        yield
    except OSError as error:
        raise _NoRoomError(error) from error


def _opened(place: Path) -> Examples | None:
    """What is in the cache; None: nothing, or nothing that is whole."""
    try:
        about = json.loads(place.with_suffix(".json").read_text())
        file = os.open(place.with_suffix(".images"), os.O_RDONLY)
        if os.fstat(file).st_size == int(np.prod(about["shape"])) and len(about["labels"]) == about["shape"][0]:
            return _read(file, about["shape"], about["labels"])
        os.close(file)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _read(file: int, shape: list[int], labels: list[int]) -> Examples:
    """The examples of a file; its images as a tensor where they are few. Takes the descriptor."""
    if int(np.prod(shape)) > IN_MEMORY:
        return Examples(StoredImages(file, tuple(shape)), torch.tensor(labels))
    images = np.empty(shape, np.uint8)  # a copy: a mapping would be the end of the process when somebody cuts the file
    read = os.preadv(file, [images.data.cast("B")], 0)
    os.close(file)
    if read != images.size:
        raise OSError("a file of decoded images has become shorter")
    return Examples(torch.from_numpy(images), torch.tensor(labels))
