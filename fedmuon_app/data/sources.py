"""Data sets by name: scikit-learn's digits, Fashion-MNIST and CIFAR-10.

Each loader gives an :class:`Data`. Whatever is missing is said in one sentence that tells how to
get it.
"""

import gzip
import importlib.util
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmuon_app.data.examples import Data, Examples
from fedmuon_app.data.pictures import folder, folder_scale, version
from fedmuon_app.data.store import Decoded, cache, kept
from fedmuon_app.errors import InputError

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")

DIGIT_CLASSES = [str(i) for i in range(10)]
FASHION_CLASSES = ["top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
CIFAR_MEAN, CIFAR_STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
CIFAR_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def digits() -> Data:
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
    return Data(
        Examples(images[~test], labels[~test]), Examples(images[test], labels[test]), DIGIT_CLASSES, [0.15], [0.3]
    )


def fashion_mnist(path: str | Path | None) -> Data:
    """60,000 and 10,000 grey 28×28 images (Xiao et al. 2017).

    Args:
        path: folder of the four idx files (``train-images-idx3-ubyte.gz`` …), or None: then those of
            Debian's package dataset-fashion-mnist, or torchvision's download where that is not installed.

    Raises:
        InputError: the files are in none of these places and cannot be downloaded.
    """
    path = folder(path)
    place = path or DEBIAN_FASHION_MNIST
    if (place / "train-images-idx3-ubyte.gz").is_file():
        train, test = (_idx_examples(place, part) for part in ("train", "t10k"))
    elif path is not None:
        raise InputError(
            f"dataset.path = {path} holds no train-images-idx3-ubyte.gz: name the folder of Fashion-MNIST's "
            "four .gz files, install Debian's package dataset-fashion-mnist, or leave the key out to download them"
        )
    else:
        from torchvision.datasets import FashionMNIST

        train, test = _downloaded(FashionMNIST, "Debian's package dataset-fashion-mnist")
    return Data(train, test, FASHION_CLASSES, [0.2860], [0.3530])


def cifar10(path: str | Path | None) -> Data:
    """50,000 and 10,000 colour 32×32 images (Krizhevsky 2009), or another data set in a folder of parquet files.

    Args:
        path: folder of parquet files in the Hugging Face layout, or None: torchvision's download. Names of classes that
            the files say are taken; without any, and with CIFAR-10's own, the pixels are scaled as CIFAR-10's.

    Raises:
        InputError: the folder is not there, the download fails, or the files are broken.
    """
    path, names = folder(path), None
    if path is not None:
        from fedmuon_app.data.parquet import read_parquet

        (train, names), (test, others) = (read_parquet(path, part) for part in ("train", "test"))
        if others not in (names, None):
            raise InputError(f"dataset.path = {path}: its train and test files have different classes")
    else:
        from torchvision.datasets import CIFAR10

        train, test = _downloaded(CIFAR10, "a folder of CIFAR-10's parquet files named by dataset.path")
    scale = CIFAR_MEAN, CIFAR_STD
    if names not in (None, CIFAR_CLASSES) or train.shape[0] != len(CIFAR_MEAN):
        scale = folder_scale(train.shape[0])
    classes = names or CIFAR_CLASSES
    for part, examples in (("train", train), ("test", test)):
        if (most := int(examples.targets.max())) >= len(classes):
            raise InputError(
                f"dataset.path = {path}: label {most} in its {part} files, and CIFAR-10 has 10 classes; other data "
                "sets need the names of their classes in the files, as datasets' ClassLabel writes them"
            )
        if examples.shape != train.shape:
            raise InputError(f"dataset.path = {path}: its train and test images differ in size or channels")
    return Data(train, test, classes, *scale)


def _idx_examples(folder: Path, part: str) -> Examples:
    """Two gzipped idx files: a header of big-endian int32 (a magic number, then the shape), then the bytes.

    Raises:
        InputError: one is missing, or is not what it should be.
    """
    files = [folder / f"{part}-{name}.gz" for name in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    seen = [(str(file.resolve()), *version(file)) for file in files]
    return kept(f"idx {seen}", lambda: _decoded_idx(folder, part, files))


def _decoded_idx(folder: Path, part: str, files: Sequence[Path]) -> Decoded:
    images, labels = (_idx(file, dims) for file, dims in zip(files, (3, 1), strict=True))
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or int(labels.max(initial=0)) >= len(FASHION_CLASSES):
        raise InputError(
            f"{folder}: {part}-images has {list(images.shape)} pixels and {part}-labels {len(labels)} labels up to "
            f"{int(labels.max(initial=0))}: needed are as many of both, of 28×28 and below 10"
        )
    return zip(images[:, None], labels.tolist(), strict=True)


def _idx(file: Path, dims: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    try:
        raw = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} cannot be read ({error})") from error
    head = np.frombuffer(raw[: 4 * (dims + 1)].ljust(4 * (dims + 1)), ">i4").astype(np.int64)
    if head[0] != 0x800 + dims or head.min() < 0 or len(raw) != 4 * len(head) + np.prod(head[1:]):
        raise InputError(f"{file} is no idx file of {dims} dimensions, or is cut off")
    return np.frombuffer(bytearray(raw), np.uint8, offset=4 * len(head)).reshape(head[1:])


def _downloaded(source: Callable[..., Any], otherwise: str) -> Iterable[Examples]:
    """Both parts of a torchvision data set, downloaded once to ~/.cache/fedmuon with its own progress bar."""
    for train in (True, False):
        try:
            part = source(str(cache()), train=train, download=True)
        except (OSError, RuntimeError) as error:
            raise InputError(
                f"the data could not be downloaded to {cache()} ({error}): connect to the network, or use {otherwise}"
            ) from error
        images = part.data.numpy() if isinstance(part.data, Tensor) else part.data
        yield Examples(_channels_first(images), torch.as_tensor(part.targets))


def _channels_first(images: np.ndarray[Any, Any]) -> Tensor:
    """uint8[N, h, w] or [N, h, w, c] to uint8[N, c, h, w]."""
    tensor = torch.from_numpy(np.array(images, dtype=np.uint8))
    return tensor.unsqueeze(1) if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2).contiguous()
