"""Whatever lies in a folder of pictures: it is read, or one sentence says what is wrong with what."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedmuon_app.data.pictures import image_folder
from fedmuon_app.errors import InputError

CASES = int(os.environ.get("FEDMUON_FUZZ", "300")) // 3

NAMES = ("cat", "dog", "train", "Test", "val", "testing", ".git", "__MACOSX", "grüße", "a b", "x'y", "100%", "1", "-f")


def saved(mode: str, suffix: str, shape: tuple[int, int] = (9, 7)) -> Callable[[Path], None]:
    pixels = np.random.default_rng(0).integers(0, 255, (*shape, 3), np.uint8)

    def save(file: Path) -> None:
        Image.fromarray(pixels).convert(mode).save(file.with_suffix(suffix))

    return save


def deep(dtype: type, suffix: str) -> Callable[[Path], None]:
    return lambda file: Image.fromarray(np.arange(64, dtype=dtype).reshape(8, 8)).save(file.with_suffix(suffix))


def content(text: bytes, suffix: str = ".png") -> Callable[[Path], None]:
    return lambda file: file.with_suffix(suffix).write_bytes(text)  # type: ignore[func-returns-value]


FILES = {
    **{f"{mode}{suffix}": saved(mode, suffix) for mode, suffix in (
        ("RGB", ".png"), ("L", ".PNG"), ("RGBA", ".png"), ("LA", ".png"), ("P", ".png"), ("1", ".bmp"), ("RGB", ".jpg"),
        ("L", ".jpeg"), ("CMYK", ".jpg"), ("YCbCr", ".tif"), ("RGB", ".webp"), ("RGB", ".ppm"), ("L", ".pgm"),
        ("RGB", ".gif"), ("LAB", ".tif"),
    )},
    "one pixel": saved("RGB", ".png", (1, 1)),
    "a thread": saved("L", ".png", (1, 500)),
    "16 bits": deep(np.uint16, ".png"),
    "16 bits, tif": deep(np.uint16, ".tif"),
    "32 bits": deep(np.int32, ".tif"),
    "floats": deep(np.float32, ".tif"),
    "empty": content(b""),
    "junk": content(bytes(range(256))),
    "half": content(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
    "notes": content(b"hello", ".txt"),
    "hidden": lambda file: (file.parent / f"._{file.name}.png").write_bytes(b"x"),
    "link to nothing": lambda file: file.with_suffix(".png").symlink_to("nowhere"),
    "link to itself": lambda file: file.with_suffix(".png").symlink_to(file.with_suffix(".png").name),
    "link up": lambda file: file.symlink_to(".."),
    "pipe": lambda file: os.mkfifo(file.with_suffix(".png")),
    "a folder like a picture": lambda file: file.with_suffix(".png").mkdir(),
}  # fmt: skip

GOOD = sorted(kind for kind in FILES if kind.endswith((".png", ".jpg", ".PNG", ".tif", ".webp", "16 bits")))
contents = st.lists(st.sampled_from(GOOD), min_size=2, max_size=4) | st.lists(
    st.sampled_from(sorted(FILES)), max_size=3
)
classes = st.dictionaries(st.sampled_from(NAMES), contents, max_size=4)
trees = st.one_of(
    classes.map(lambda inner: {("",): inner}),
    st.dictionaries(st.sampled_from(["train", "Test", "val", "other"]).map(lambda x: (x,)), classes, max_size=3),
)


@settings(max_examples=CASES)
@given(trees, st.sampled_from([1, 3]), st.none() | st.just(["cat", "dog"]))
def test_a_folder_is_read_or_a_sentence_names_what_is_wrong(
    tree: dict[tuple[str], dict[str, list[str]]], channels: int, names: list[str] | None
) -> None:
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for (part,), inner in tree.items():
            for name, files in inner.items():
                folder = root / "data" / part / name
                folder.mkdir(parents=True, exist_ok=True)
                for i, kind in enumerate(files):
                    FILES[kind](folder / f"{i}")
        (root / "data").mkdir(exist_ok=True)
        try:
            data = image_folder(root / "data", 8, channels, names, 0)
        except InputError as error:
            event("refused")
            one_line_about(root, error)
            return
        event("read")
        assert len(data.classes) >= 2
        for examples in (data.train, data.test):
            assert examples.inputs.shape == (len(examples.targets), channels, 8, 8)
            assert len(examples) > 0
            assert 0 <= int(examples.targets.min()) <= int(examples.targets.max()) < len(data.classes)
    finally:
        shutil.rmtree(root)


def one_line_about(root: Path, error: Exception) -> None:
    assert [str(root) in line for line in str(error).splitlines()] == [True]
