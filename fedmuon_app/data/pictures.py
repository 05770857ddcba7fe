"""Pictures of any kind from a folder: which of its files are pictures, of which class, and what is in them."""

import io
import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import track

from fedmuon_app.data.examples import Data, Examples, held_out
from fedmuon_app.data.store import Decoded, kept
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import rng

log = logging.getLogger("fedmuon")

HOLD_OUT = 0.2  # of a folder that has no test part of its own
GROUND = (128, 128, 128, 255)  # what shows through a transparent picture: neither black nor white shapes vanish on it
SYSTEM = re.compile(r"\..*|__MACOSX|@eaDir|\$RECYCLE\.BIN|System Volume Information|lost\+found")  # and hidden ones
PARTS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("val", "valid", "validation"),
}
T = TypeVar("T")

MANY = 1000  # pictures from which a bar shows their decoding
CHUNK = 256  # pictures that are decoded at a time


def image_folder(path: str | Path | None, size: int, channels: int, classes: Sequence[str] | None, seed: int) -> Data:
    """A folder of class folders: ``path/train`` and ``path/test`` (or ``val``), or ``path`` with a fifth held out.

    Args:
        path: the folder.
        size: images are resized to size × size.
        channels: 1 (grey) or 3 (colour).
        classes: names of the class folders in the order of the labels, or None: all that are there, sorted.
        seed: decides what is held out.

    Raises:
        InputError: the folder is not there, a class folder is empty or missing, there are fewer than two classes or
            too few pictures, or one is broken.
    """
    path = folder(path)
    if path is None:
        raise InputError(
            "dataset.path = None is not a folder: dataset=image_folder needs one that holds a folder of "
            "images for each class (or train/ and test/ with a folder a class)"
        )
    train, test = _parts(path)
    names = list(classes or sorted(folder.name for folder in _folders(train)))
    if len(names) < 2:
        raise InputError(
            f"dataset.path = {path} holds {len(names)} class folders ({', '.join(names)}): needed are two or more"
        )
    examples = read_folder(train, size, channels, names)
    if test is not None:
        if others := other_classes(test, names):
            raise InputError(f"{test} has class folders that {train} lacks: {', '.join(others[:5])}")
        return Data(examples, read_folder(test, size, channels, names, missing_ok=True), names, *folder_scale(channels))
    kept_back, held_back = (examples.subset(part) for part in held_out(len(examples), HOLD_OUT, rng(seed, "hold out")))
    if not len(held_back):
        raise InputError(
            f"dataset.path = {path} holds {len(examples)} pictures: too few to hold out a fifth for the test; "
            "add some, or put them into train/ and test/"
        )
    return Data(kept_back, held_back, names, *folder_scale(channels))


def test_folder(path: str | Path | None, size: int, channels: int, classes: Sequence[str] | None) -> Data:
    """Pictures to test on alone: ``path/test`` (or ``val``), or all of ``path``; None: none at all.

    The other arguments are as in :func:`image_folder`.

    Raises:
        InputError: as :func:`image_folder`.
    """
    names, path = list(classes or []), folder(path)
    if path is None:
        nothing = Examples(torch.empty(0, channels, size, size, dtype=torch.uint8), torch.empty(0, dtype=torch.int64))
        return Data(nothing, nothing, names, *folder_scale(channels))
    whole, test = _parts(path)
    examples = read_folder(test or whole, size, channels, names, missing_ok=True)
    return Data(examples.subset(np.arange(0)), examples, names, *folder_scale(channels))


def folder(path: str | Path | None) -> Path | None:
    """``dataset.path``, which may begin with ~.

    Raises:
        InputError: it is no folder.
    """
    place = None if path is None else Path(path).expanduser()
    if place is not None and not place.is_dir():
        raise InputError(f"dataset.path = {place} is not there: name a folder that holds the data, or leave it out")
    return place


def other_classes(path: Path, classes: Sequence[str]) -> list[str]:
    """The class folders in ``path`` that hold pictures and are none of ``classes``."""
    return [folder.name for folder in _folders(path) if folder.name not in classes and any(_pictures(folder))]


def folder_scale(channels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation that images of unknown kind are scaled by; the same at every client."""
    return [0.5] * channels, [0.25] * channels


def read_folder(path: Path, size: int, channels: int, classes: Sequence[str], missing_ok: bool = False) -> Examples:
    """Read a folder of class folders, resized to uint8[N, channels, size, size].

    Args:
        path: the folder.
        size: in pixels.
        channels: 1 or 3.
        classes: names of the class folders, in the order of the labels.
        missing_ok: a class may have no folder (one client seldom has them all).

    Raises:
        InputError: a class folder is missing or has no image, there is none at all, or a picture is broken.
    """
    files = [(file, label) for label, name in enumerate(classes) for file in _pictures(path / name)]
    for label in set(range(len(classes))) - {label for _, label in files}:
        folder = path / classes[label]
        if not missing_ok or folder.is_dir():
            raise InputError(f"{folder} holds no image: put images of class {folder.name} there, or remove the class")
    if not files:
        raise InputError(f"{path} holds no class folder: expected some of {', '.join(classes) or 'any name'}")
    if loose := sum(_is_picture(file.name) for file in path.iterdir() if not file.is_dir()):
        log.warning("%s: %d pictures lie beside its class folders and are passed over", path, loose)

    def decode() -> Decoded:
        images = _decoded([file for file, _ in files], size, channels, str(path))
        return zip(images, (label for _, label in files), strict=True)

    seen = [(str(file.relative_to(path)), label, *version(file)) for file, label in files]
    return kept(f"{path.resolve()} {size} {channels} {GROUND} {seen}", decode)


def picture(source: Path | io.BytesIO, size: int | None = None, channels: int | None = None) -> NDArray[np.uint8]:
    """One picture as uint8[c, h, w].

    The way it is to be held up (EXIF) is followed, 16 bits a channel become 8 by their range, and what is transparent
    shows a grey ground.

    Args:
        source: a file, or its content.
        size: resize it to size × size; None: as it is.
        channels: 1 (grey) or 3 (colour); None: as it is.

    Raises:
        ValueError: it cannot be read; the message says why, and not where.
    """
    try:
        with Image.open(source) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
            if image.mode in ("I", "F"):
                raise ValueError("its pixels are 32-bit numbers of unknown range; save it with 8 or 16 bits a channel")
            if image.has_transparency_data:
                image = Image.alpha_composite(Image.new("RGBA", image.size, GROUND), image.convert("RGBA"))
            grey = image.mode in ("L", "1") if channels is None else channels == 1
            image = image.convert("L" if grey else "RGB")
            if size is not None:
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(image)
    except ValueError:
        raise
    except Exception as error:  # whatever a decoder makes of somebody's bytes
        words = str(error).replace(f" {str(source)!r}", "") if isinstance(source, Path) else "it is none"
        raise ValueError(words if words else type(error).__name__) from error
    return pixels[None] if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def shown(what: Iterable[T], total: int, title: str) -> Iterable[T]:
    """The same, with a bar where they are many and somebody looks."""
    console = Console(stderr=True)
    if total < MANY:
        return what
    if not console.is_terminal:
        log.warning("%s: decoding %d pictures, once", title, total)
        return what
    return track(what, f"decoding {title}", total, console=console, transient=True)


def _decoded(files: Sequence[Path], size: int, channels: int, title: str) -> Iterator[NDArray[np.uint8]]:
    def one(file: Path) -> NDArray[np.uint8]:
        try:
            if not stat.S_ISREG(file.stat().st_mode):
                raise ValueError("no regular file")
            return picture(file, size, channels)
        except (ValueError, OSError) as error:
            reason = "a link to nothing" if file.is_symlink() and not file.exists() else error
            raise InputError(f"{file} cannot be read as a picture ({reason}): mend it, or take it away") from error

    def all_of_them() -> Iterator[NDArray[np.uint8]]:
        with ThreadPoolExecutor(cpu_count()) as pool:
            for start in range(0, len(files), CHUNK):
                yield from pool.map(one, files[start : start + CHUNK])

    yield from shown(all_of_them(), len(files), title)


def _parts(path: Path) -> tuple[Path, Path | None]:
    """Where the training pictures are, and the test's if they are apart: folders that hold class folders.

    Raises:
        InputError: there is a test part, but none to train on.
    """
    found: dict[str, Path] = {}
    for folder in _folders(path):
        for part, names in PARTS.items():
            if folder.name.lower() in names and any(any(_pictures(inner)) for inner in _folders(folder)):
                found[part] = folder
    if not found:
        return path, None
    if "train" not in found:
        there = ", ".join(f"{folder.name}/" for folder in found.values())
        raise InputError(f"dataset.path = {path} holds {there} but no train/ with class folders to train on")
    train, test = found["train"], found.get("test", found.get("validation"))
    passed = [folder.name for folder in _folders(path) if folder not in (train, test) and any(_pictures(folder))]
    log.warning(
        "%s: training on %s/, testing on %s%s", path, train.name, f"{test.name}/" if test else "a fifth of it",
        f"; passed over: {', '.join(passed[:5])}" if passed else "",
    )  # fmt: skip
    return train, test


def _folders(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if folder.is_dir() and not _system(folder))


def _pictures(folder: Path) -> Iterator[Path]:
    """Files in ``folder`` and below that are named like pictures, in order; hidden and system names are passed over."""
    seen: set[tuple[int, int]] = set()  # a link may lead back up
    for place, folders, files in os.walk(folder, followlinks=True):
        at = Path(place).stat()
        if (at.st_dev, at.st_ino) in seen:
            folders.clear()
            continue
        seen.add((at.st_dev, at.st_ino))
        folders[:] = sorted(f for f in folders if not SYSTEM.fullmatch(f))
        yield from (Path(place) / f for f in sorted(files) if _is_picture(f))


def _is_picture(name: str) -> bool:
    from torchvision.datasets.folder import is_image_file  # a second to import, which other data sets go without

    return bool(is_image_file(name)) and not SYSTEM.fullmatch(name)


def _system(path: Path) -> bool:
    return SYSTEM.fullmatch(path.name) is not None


def version(file: Path) -> tuple[int, int]:
    """Size and time of the last change; of a file that is not there neither."""
    try:
        about = file.stat()
    except OSError:
        return 0, 0
    return about.st_size, about.st_mtime_ns
