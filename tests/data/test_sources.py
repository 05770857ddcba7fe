import gzip
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedmuon_app.data import sources, store
from fedmuon_app.errors import InputError


def test_digits_are_all_there_and_none_is_in_both_parts() -> None:
    data = sources.digits()
    theirs = load_digits()
    assert data.train.targets.tolist() == [y for i, y in enumerate(theirs.target) if i % 5 != 4]
    enlarged = torch.nn.functional.interpolate(
        torch.from_numpy(theirs.images)[4::5, None] * 255 / 16, size=20, mode="bilinear"
    )
    assert (data.test.inputs[:, :, 4:-4, 4:-4] - enlarged).abs().max() <= 0.5 + 1e-4
    assert len(data.train) + len(data.test) == 1797
    assert data.train.inputs.shape[1:] == (1, 28, 28)
    assert data.train.inputs.dtype == torch.uint8
    train = {image.numpy().tobytes() for image in data.train.inputs}
    assert not any(image.numpy().tobytes() in train for image in data.test.inputs)
    assert torch.bincount(data.train.targets).min() > 100
    pixels = data.train.inputs.float() / 255
    assert pixels.mean() == pytest.approx(data.mean[0], abs=0.05)
    assert pixels.std() == pytest.approx(data.std[0], abs=0.05)


@pytest.mark.data
def test_fashion_mnist_from_debians_files() -> None:
    data = sources.fashion_mnist(None)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert torch.bincount(data.train.targets).tolist() == [6000] * 10
    pixels = data.train.inputs.float() / 255
    assert pixels.mean() == pytest.approx(data.mean[0], abs=1e-3)
    assert pixels.std() == pytest.approx(data.std[0], abs=1e-3)
    assert data.train.targets[:5].tolist() == [9, 0, 0, 3, 0]  # the first labels of the published file


def write_idx(file: Path, array: np.ndarray) -> None:
    head = np.array([0x800 + array.ndim, *array.shape], ">i4")
    file.write_bytes(gzip.compress(head.tobytes() + array.tobytes()))


def test_idx_files_keep_their_pixels(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("t10k", 2)):
        images = np.random.default_rng(n).integers(0, 256, (n, 28, 28), dtype=np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(n, dtype=np.uint8))
    data = sources.fashion_mnist(tmp_path)
    assert data.train.targets.tolist() == [0, 1, 2]
    assert (
        data.test.inputs[0, 0].numpy().tolist()
        == np.random.default_rng(2).integers(0, 256, (2, 28, 28), dtype=np.uint8)[0].tolist()
    )


def test_fashion_mnist_elsewhere_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dataset-fashion-mnist"):
        sources.fashion_mnist(tmp_path)


@pytest.mark.parametrize("broken", ["empty", "junk", "cut", "of other sizes", "of more labels", "a label of 10"])
@pytest.mark.parametrize("name", ["images-idx3", "labels-idx1"])
def test_broken_idx_files_are_named(name: str, broken: str, tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", np.zeros((3, 28, 28), np.uint8))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.zeros(3, np.uint8))
    file = tmp_path / f"t10k-{name}-ubyte.gz"
    whole = file.read_bytes()
    if broken in ("of other sizes", "of more labels", "a label of 10"):
        array = np.full((4, 28, 27) if "images" in name else 4, 10, np.uint8)
        write_idx(file, array if broken != "a label of 10" or "images" in name else array[:3])
    else:
        file.write_bytes({"empty": b"", "junk": b"no gzip at all", "cut": whole[:-9]}[broken])
    with pytest.raises(InputError, match=rf"t10k-{name}-ubyte.gz|{tmp_path}: t10k-images has"):
        sources.fashion_mnist(tmp_path)


@pytest.mark.parametrize("environment", [{"XDG_CACHE_HOME": "/somewhere"}, {"HOME": "/home/me"}, {}])
def test_there_is_a_place_for_the_cache_even_without_a_home(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(Path, "home", lambda: Path(os.environ["HOME"]) if "HOME" in os.environ else nobody())

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    places = {"XDG_CACHE_HOME": "/somewhere/", "HOME": "/home/me/.cache/"}
    assert str(store.cache()).startswith(places.get(next(iter(environment), ""), tempfile.gettempdir()))
