"""Where images come from: scikit-learn's digits, Fashion-MNIST, CIFAR-10, and the user's own folders.

Each loader gives an :class:`ImageData`. Whatever is missing is said in one sentence that tells how to
get it.
"""

import gzip
import importlib.util
import io
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedmuon_app.data.examples import Examples, ImageData
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import rng

log = logging.getLogger("fedmuon")

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedmuon"
)  # downloads, and partitions once dealt
HOLD_OUT = 0.2  # of an image folder that has no test part of its own

DIGIT_CLASSES = [str(i) for i in range(10)]
FASHION_CLASSES = ["top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
CIFAR_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def digits() -> ImageData:
    """1,797 handwritten digits, 8×8, enlarged to 20×20 on a 28×28 ground: every fifth one is for the test.

    They come inside scikit-learn (Alpaydin and Kaynak 1998), so nothing is downloaded. The size is
    MNIST's, so that the same LeNet trains on them.
    """
    scikit_learn = importlib.util.find_spec("sklearn")  # importing it takes two seconds, and this needs a file of its
    assert scikit_learn is not None
    table = np.loadtxt(Path(str(scikit_learn.origin)).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    small = torch.from_numpy(table[:, :64]).float().view(-1, 1, 8, 8) * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=20, mode="bilinear").round().clamp(0, 255)
    images = torch.nn.functional.pad(large, (4, 4, 4, 4)).to(torch.uint8)
    labels = torch.from_numpy(table[:, 64]).long()
    test = torch.arange(len(labels)) % 5 == 4
    return ImageData(
        Examples(images[~test], labels[~test]), Examples(images[test], labels[test]), DIGIT_CLASSES, [0.15], [0.3]
    )


def fashion_mnist(path: Path | None) -> ImageData:
    """60,000 and 10,000 grey 28×28 images (Xiao et al. 2017).

    Args:
        path: folder of the four idx files (``train-images-idx3-ubyte.gz`` …), or None: then those of
            Debian's package dataset-fashion-mnist, or torchvision's download where that is not installed.

    Raises:
        InputError: the files are in none of these places and cannot be downloaded.
    """
    folder = path or DEBIAN_FASHION_MNIST
    if (folder / "train-images-idx3-ubyte.gz").is_file():
        train, test = (_idx_examples(folder, part) for part in ("train", "t10k"))
    elif path is not None:
        raise InputError(
            f"dataset.path = {path} holds no train-images-idx3-ubyte.gz: name the folder of Fashion-MNIST's "
            "four .gz files, install Debian's package dataset-fashion-mnist, or leave the key out to download them"
        )
    else:
        from torchvision.datasets import FashionMNIST

        train, test = _downloaded(FashionMNIST, "Debian's package dataset-fashion-mnist")
    return ImageData(train, test, FASHION_CLASSES, [0.2860], [0.3530])


def cifar10(path: Path | None) -> ImageData:
    """50,000 and 10,000 colour 32×32 images (Krizhevsky 2009).

    Args:
        path: folder of parquet files in the Hugging Face layout, or None: torchvision's download.

    Raises:
        InputError: no such folder, or the download fails.
    """
    if path is not None:
        train, test = parquet(path, "train"), parquet(path, "test")
    else:
        from torchvision.datasets import CIFAR10

        train, test = _downloaded(CIFAR10, "a folder of CIFAR-10's parquet files named by dataset.path")
    return ImageData(train, test, CIFAR_CLASSES, [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])


def parquet(folder: Path, part: str) -> Examples:
    """Read ``<part>-*.parquet`` in the Hugging Face layout: an image column {bytes, path}, and ``label``.

    Raises:
        InputError: no such files, other columns, or images of several sizes.
    """
    from pyarrow import parquet as pq

    files = sorted(folder.glob(f"{part}-*.parquet"))
    if not files:
        raise InputError(
            f"dataset.path = {folder} holds no {part}-*.parquet (Hugging Face's layout of an image data set)"
        )
    images, labels = [], []
    for file in files:
        table = pq.read_table(file)
        column = next((name for name in ("img", "image") if name in table.column_names), None)
        if column is None or "label" not in table.column_names:
            raise InputError(f"{file} has columns {table.column_names}: needed are img (or image) and label")
        images += [np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in table[column].to_pylist()]
        labels += table["label"].to_pylist()
    if len({image.shape for image in images}) > 1:
        raise InputError(f"dataset.path = {folder}: the images differ in size or channels, and must not")
    return Examples(_channels_first(np.stack(images)), torch.tensor(labels))


def image_folder(path: Path | None, size: int, channels: int, classes: Sequence[str] | None, seed: int) -> ImageData:
    """A folder of class folders: ``path/train`` and ``path/test``, or ``path`` with a fifth held out.

    Args:
        path: the folder.
        size: images are resized to size × size.
        channels: 1 (grey) or 3 (colour).
        classes: names of the class folders in the order of the labels, or None: those that are there, sorted.
        seed: decides what is held out.

    Raises:
        InputError: no such folder, or a class folder is empty or missing.
    """
    if path is None or not path.is_dir():
        raise InputError(
            f"dataset.path = {path} is not a folder: dataset=image_folder needs one that holds a folder of "
            "images for each class (or train/ and test/ with such folders)"
        )
    if (path / "train").is_dir() and (path / "test").is_dir():
        names = classes or sorted(entry.name for entry in (path / "train").iterdir() if entry.is_dir())
        train = read_folder(path / "train", size, channels, names)
        test = read_folder(path / "test", size, channels, names)
    else:
        names = classes or sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        whole = read_folder(path, size, channels, names)
        train, test = whole.split(HOLD_OUT, rng(seed, "hold out"))
    return ImageData(train, test, names, *folder_scale(channels))


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
        InputError: a class folder is missing or has no image, or there is none at all.
    """
    from torchvision.datasets.folder import ImageFolder, is_image_file

    present = [name for name in classes if (path / name).is_dir()]
    for name in classes if not missing_ok else present:
        if name not in present or not any(is_image_file(str(file)) for file in (path / name).rglob("*")):
            raise InputError(f"{path / name} holds no image: put images of class {name} there, or remove the class")
    if not present:
        raise InputError(f"{path} holds no class folder: expected some of {', '.join(classes) or 'any name'}")

    def resized(image: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.asarray(
            image.convert("L" if channels == 1 else "RGB").resize((size, size), Image.Resampling.BILINEAR)
        )

    class Folder(ImageFolder):  # type: ignore[misc]  # torchvision has no types
        def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
            return present, {name: classes.index(name) for name in present}

    folder = Folder(str(path), transform=resized)
    pairs = [folder[i] for i in range(len(folder))]
    return Examples(_channels_first(np.stack([image for image, _ in pairs])), torch.tensor([y for _, y in pairs]))


def _idx_examples(folder: Path, part: str) -> Examples:
    """Two gzipped idx files: a header of 16 or 8 bytes, then the bytes."""

    def read(name: str, header: int) -> Tensor:
        raw = bytearray(gzip.decompress((folder / f"{part}-{name}.gz").read_bytes()))
        return torch.frombuffer(raw, dtype=torch.uint8, offset=header)

    return Examples(read("images-idx3-ubyte", 16).view(-1, 1, 28, 28), read("labels-idx1-ubyte", 8).long())


def _downloaded(source: Callable[..., Any], otherwise: str) -> Iterable[Examples]:
    """Both parts of a torchvision data set, downloaded once to ~/.cache/fedmuon with its own progress bar."""
    for train in (True, False):
        try:
            part = source(str(CACHE), train=train, download=True)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"the data could not be downloaded to {CACHE} ({error}): connect to the network, or use {otherwise}"
            ) from error
        images = part.data.numpy() if isinstance(part.data, Tensor) else part.data
        yield Examples(_channels_first(images), torch.as_tensor(part.targets))


def _channels_first(images: np.ndarray[Any, Any]) -> Tensor:
    """uint8[N, h, w] or [N, h, w, c] to uint8[N, c, h, w]."""
    tensor = torch.from_numpy(np.array(images, dtype=np.uint8))
    return tensor.unsqueeze(1) if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2).contiguous()
