import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet as pq
from sklearn.datasets import load_digits

from fedmuon_app.data import sources
from fedmuon_app.errors import InputError


def test_digits_are_all_there_and_none_is_in_both_parts() -> None:
    data = sources.digits()
    theirs = load_digits()
    assert data.train.labels.tolist() == [y for i, y in enumerate(theirs.target) if i % 5 != 4]
    enlarged = torch.nn.functional.interpolate(
        torch.from_numpy(theirs.images)[4::5, None] * 255 / 16, size=20, mode="bilinear"
    )
    assert (data.test.images[:, :, 4:-4, 4:-4] - enlarged).abs().max() <= 0.5 + 1e-4
    assert len(data.train) + len(data.test) == 1797
    assert data.train.images.shape[1:] == (1, 28, 28)
    assert data.train.images.dtype == torch.uint8
    train = {image.numpy().tobytes() for image in data.train.images}
    assert not any(image.numpy().tobytes() in train for image in data.test.images)
    assert torch.bincount(data.train.labels).min() > 100
    pixels = data.train.images.float() / 255
    assert pixels.mean() == pytest.approx(data.mean[0], abs=0.05)
    assert pixels.std() == pytest.approx(data.std[0], abs=0.05)


@pytest.mark.data
def test_fashion_mnist_from_debians_files() -> None:
    data = sources.fashion_mnist(None)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert torch.bincount(data.train.labels).tolist() == [6000] * 10
    pixels = data.train.images.float() / 255
    assert pixels.mean() == pytest.approx(data.mean[0], abs=1e-3)
    assert pixels.std() == pytest.approx(data.std[0], abs=1e-3)
    assert data.train.labels[:5].tolist() == [9, 0, 0, 3, 0]  # the first labels of the published file


def test_idx_files_keep_their_pixels(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("t10k", 2)):
        images = np.random.default_rng(n).integers(0, 256, (n, 28, 28), dtype=np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(16) + images.tobytes()))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes(8) + bytes(range(n))))
    data = sources.fashion_mnist(tmp_path)
    assert data.train.labels.tolist() == [0, 1, 2]
    assert (
        data.test.images[0, 0].numpy().tolist()
        == np.random.default_rng(2).integers(0, 256, (2, 28, 28), dtype=np.uint8)[0].tolist()
    )


def test_fashion_mnist_elsewhere_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dataset-fashion-mnist"):
        sources.fashion_mnist(tmp_path)


def write_parquet(file: Path, images: list[np.ndarray], column: str = "img") -> None:
    rows = []
    for image in images:
        png = io.BytesIO()
        Image.fromarray(image).save(png, "PNG")
        rows.append({"bytes": png.getvalue(), "path": None})
    pq.write_table(pa.table({column: rows, "label": list(range(len(images)))}), file)


def test_parquet_files_are_read_in_order(tmp_path: Path) -> None:
    images = [np.full((32, 32, 3), i, dtype=np.uint8) for i in range(4)]
    write_parquet(tmp_path / "train-00000-of-00002.parquet", images[:2])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", images[2:])
    write_parquet(tmp_path / "test-00000-of-00001.parquet", images[:1], column="image")
    data = sources.cifar10(tmp_path)
    assert data.train.images.shape == (4, 3, 32, 32)
    assert data.train.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert len(data.test) == 1


def test_a_folder_without_parquet_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train-\*\.parquet"):
        sources.cifar10(tmp_path)


def write_classes(folder: Path, classes: dict[str, int]) -> None:
    for value, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(np.full((9, 12, 3), 50 * value + i, dtype=np.uint8)).save(folder / name / f"{i}.png")


def test_an_image_folder_is_split_resized_and_made_grey(tmp_path: Path) -> None:
    write_classes(tmp_path, {"cat": 6, "dog": 4})
    data = sources.image_folder(tmp_path, size=28, channels=1, classes=None, seed=0)
    assert list(data.classes) == ["cat", "dog"]
    assert data.train.images.shape == (8, 1, 28, 28)
    assert len(data.test) == 2
    for examples in (data.train, data.test):
        assert ((examples.images[:, 0, 0, 0] >= 50).long() == examples.labels).all()


def test_train_and_test_folders_are_taken_as_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", {"a": 3, "b": 2})
    write_classes(tmp_path / "test", {"a": 1, "b": 1})
    data = sources.image_folder(tmp_path, size=8, channels=3, classes=None, seed=0)
    assert data.train.images.shape == (5, 3, 8, 8)
    assert data.test.labels.tolist() == [0, 1]


def test_an_empty_class_folder_is_refused_by_name(tmp_path: Path) -> None:
    write_classes(tmp_path, {"cat": 2, "dog": 0})
    with pytest.raises(InputError, match="dog holds no image"):
        sources.image_folder(tmp_path, size=28, channels=1, classes=None, seed=0)


def test_a_clients_own_folder_may_lack_classes_and_keeps_their_numbers(tmp_path: Path) -> None:
    write_classes(tmp_path, {"dog": 2})
    examples = sources.read_folder(tmp_path, 8, 1, ["cat", "dog"], missing_ok=True)
    assert examples.labels.tolist() == [1, 1]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        sources.image_folder(tmp_path / "nowhere", size=28, channels=1, classes=None, seed=0)
