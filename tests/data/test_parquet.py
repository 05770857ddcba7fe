"""Parquet files in Hugging Face's layout: other people's, and broken ones."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet as pq

from fedmuon_app.data import sources
from fedmuon_app.errors import InputError


def png(image: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def write(
    file: Path, images: list[Any], labels: list[Any], names: list[str] | None = None, column: str = "img"
) -> None:
    """A file of images (arrays, or what is to stand in their place) as datasets writes it."""
    rows = [{"bytes": png(x), "path": None} if isinstance(x, np.ndarray) else x for x in images]
    table = pa.table({column: rows, "label": labels})
    if names is not None:
        features = {column: {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        about = {"info": {"features": features}}
        table = table.replace_schema_metadata({b"huggingface": json.dumps(about).encode()})
    pq.write_table(table, file)


def plain(value: int, *shape: int) -> np.ndarray:
    return np.full(shape or (32, 32, 3), value, np.uint8)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def both(folder: Path, images: list[Any], labels: list[Any], names: list[str] | None = None) -> Path:
    for part in ("train", "test"):
        write(folder / f"{part}-00000-of-00001.parquet", images, labels, names)
    return folder


def test_parquet_files_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "train-00000-of-00002.parquet", [plain(0), plain(1)], [0, 1])
    write(tmp_path / "train-00001-of-00002.parquet", [plain(2), plain(3)], [0, 1])
    write(tmp_path / "test-00000-of-00001.parquet", [plain(0)], [0], column="image")
    for _ in range(2):  # decoded, and from the cache
        data = sources.cifar10(tmp_path)
        assert data.train.inputs.shape == (4, 3, 32, 32)
        assert data.train.inputs[:][:, 0, 0, 0].tolist() == [0, 1, 2, 3]
        assert data.train.targets.tolist() == [0, 1, 0, 1]
        assert len(data.test) == 1
        assert (data.classes, data.mean) == (sources.CIFAR_CLASSES, sources.CIFAR_MEAN)


def test_another_data_sets_classes_are_the_files_own(tmp_path: Path) -> None:
    data = sources.cifar10(both(tmp_path, [plain(3, 20, 24), plain(7, 20, 24)], [1, 2], ["ant", "bee", "fly"]))
    assert data.train.inputs.shape == (2, 1, 20, 24)  # grey, and no square
    assert (list(data.classes), data.mean, data.std) == (["ant", "bee", "fly"], [0.5], [0.25])


def test_a_folder_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    assert len(sources.cifar10(both(tmp_path, [plain(1)], [1])).train) == 1
    assert len(sources.cifar10(both(tmp_path, [plain(1), plain(2)], [1, 4])).train) == 2


def test_a_folder_without_parquet_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train-\*\.parquet"):
        sources.cifar10(tmp_path)


ROWS: dict[str, tuple[list[Any], list[Any], list[str] | None]] = {
    "row 1: label = -1, and must be a whole number from 0 to 2": ([plain(0)] * 2, [0, -1], ["a", "b", "c"]),
    "row 0: label = 3, and must be a whole number from 0 to 2": ([plain(0)], [3], ["a", "b", "c"]),
    "label 10 in its train files, and CIFAR-10 has 10 classes": ([plain(0)], [10], None),
    "row 0: label = None": ([plain(0)], [None], None),
    "row 0: label = 'cat'": ([plain(0)], ["cat"], None),
    "row 0: label = 0.5": ([plain(0)], [0.5], None),
    "row 1: it holds no image \\(img = None\\)": ([plain(0), None], [0, 1], None),
    "row 0: it holds no image \\(img = {'bytes': None": ([{"bytes": None, "path": "a.png"}], [0], None),
    "row 0: it cannot be read as a picture": ([{"bytes": b"junk", "path": None}], [0], None),
    "row 1: it cannot be read as a picture": ([plain(0), {"bytes": png(plain(0))[:60], "path": None}], [0, 1], None),
    "row 1: an image of \\[3, 8, 8\\]": ([plain(0), plain(0, 8, 8, 3)], [0, 1], None),
    "row 1: an image of \\[1, 32, 32\\]": ([plain(0), plain(0, 32, 32)], [0, 1], None),
    "hold no row": ([], [], None),
}


@pytest.mark.parametrize("said", ROWS)
def test_a_broken_row_is_named(said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        sources.cifar10(both(tmp_path, *ROWS[said]))


@pytest.mark.parametrize("cut", [0, 3, 400, -9])
def test_a_broken_file_is_named(cut: int, tmp_path: Path) -> None:
    both(tmp_path, [plain(i) for i in range(9)], list(range(9)))
    file = tmp_path / "test-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"test-00000-of-00001\.parquet cannot be read"):
        sources.cifar10(tmp_path)


def test_pages_that_are_damaged_are_noticed_while_they_are_read(tmp_path: Path) -> None:
    both(tmp_path, [plain(i) for i in range(9)], list(range(9)))
    file = tmp_path / "train-00000-of-00001.parquet"
    raw = bytearray(file.read_bytes())
    raw[4:400] = bytes(396)
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"train-00000-of-00001\.parquet"):
        sources.cifar10(tmp_path)


def test_other_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"pixels": [1], "label": [0]}), tmp_path / "train-0.parquet")
    with pytest.raises(InputError, match=r"has columns \['pixels', 'label'\]: needed are img"):
        sources.cifar10(tmp_path)


def test_different_train_and_test_data_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet", [plain(0)], [0], ["a", "b"])
    write(tmp_path / "test-0.parquet", [plain(0)], [0], ["b", "a"])
    with pytest.raises(InputError, match="have different classes"):
        sources.cifar10(tmp_path)
    write(tmp_path / "test-0.parquet", [plain(0, 8, 8, 3)], [0], ["a", "b"])
    with pytest.raises(InputError, match="differ in size or channels"):
        sources.cifar10(tmp_path)
