"""Images in parquet files, laid out as Hugging Face does it: a column of {bytes, path}, and one of labels."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyarrow import ArrowException
from pyarrow import parquet as pq

from fedmuon_app.data.examples import Examples
from fedmuon_app.data.pictures import picture, shown, version
from fedmuon_app.data.store import Decoded, kept
from fedmuon_app.errors import InputError

ROWS = 256  # that are decoded at a time


def read_parquet(folder: Path, part: str) -> tuple[Examples, list[str] | None]:
    """Read ``<part>-*.parquet``: a column ``img`` or ``image`` of {bytes, path}, and ``label``.

    Args:
        folder: where they are.
        part: ``train`` or ``test``.

    Returns:
        The examples, and the names of the classes where the files say them.

    Raises:
        InputError: there is no file, one is broken or has other columns, an image is, or images have several sizes.
    """
    paths = sorted(folder.glob(f"{part}-*.parquet"))
    if not paths:
        raise InputError(
            f"dataset.path = {folder} holds no {part}-*.parquet (Hugging Face's layout of an image data set)"
        )
    files = [_opened(path) for path in paths]
    names = _class_names(files[0])
    total = sum(file.metadata.num_rows for file in files)
    if not total:
        raise InputError(f"dataset.path = {folder}: its {part}-*.parquet hold no row")

    def decode() -> Decoded:
        return iter(shown(_rows(paths, files, names), total, f"{folder} ({part})"))

    seen = [(str(path.resolve()), *version(path)) for path in paths]
    return kept(f"parquet {seen}", decode), names


def _opened(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as a parquet file ({str(error).splitlines()[0]})") from error
    _image_column(path, file)
    return file


def _image_column(path: Path, file: pq.ParquetFile) -> str:
    """The name of the column of images; beside it there is ``label``."""
    there = file.schema_arrow.names
    column = next((name for name in ("img", "image") if name in there), None)
    if column is None or "label" not in there:
        raise InputError(f"{path} has columns {there}: needed are img (or image) and label")
    return column


def _class_names(file: pq.ParquetFile) -> list[str] | None:
    """What Hugging Face's metadata of a file say of its labels."""
    about: Any = file.schema_arrow.metadata or {}
    try:
        names = json.loads(about[b"huggingface"])["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if names else None


def _rows(paths: Sequence[Path], files: Sequence[pq.ParquetFile], names: Sequence[str] | None) -> Decoded:
    shape: tuple[int, ...] | None = None
    for path, file in zip(paths, files, strict=True):
        column = _image_column(path, file)
        row = -1
        for batch in _batches(path, file, [column, "label"]):
            for image, y in zip(batch[column].to_pylist(), batch["label"].to_pylist(), strict=True):
                row += 1
                most = "or more" if names is None else f"to {len(names) - 1}"
                if isinstance(y, bool) or not isinstance(y, int) or y < 0 or (names is not None and y >= len(names)):
                    raise InputError(f"{path}, row {row}: label = {y!r}, and must be a whole number from 0 {most}")
                content = image.get("bytes") if isinstance(image, dict) else image
                if not isinstance(content, bytes):
                    raise InputError(f"{path}, row {row}: it holds no image ({column} = {_short(image)})")
                try:
                    pixels = picture(io.BytesIO(content))
                except ValueError as error:
                    raise InputError(f"{path}, row {row}: it cannot be read as a picture ({error})") from error
                shape = shape or pixels.shape
                if pixels.shape != shape:
                    raise InputError(
                        f"{path}, row {row}: an image of {list(pixels.shape)} (channels, height, width) after others "
                        f"of {list(shape)}: all must have one size"
                    )
                yield pixels, y


def _batches(path: Path, file: pq.ParquetFile, columns: list[str]) -> Iterator[Any]:
    try:
        yield from file.iter_batches(batch_size=ROWS, columns=columns)
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read to its end ({str(error).splitlines()[0]})") from error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
