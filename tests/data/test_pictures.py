"""Folders of pictures: whatever is in them is read right, or named in one sentence."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedmuon_app.data import pictures, store
from fedmuon_app.data.examples import Data, Examples, StoredImages, held_out
from fedmuon_app.data.pictures import picture
from fedmuon_app.errors import InputError


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def read() -> Callable[..., Data]:
    def read(path: Path | None, size: int = 8, channels: int = 1, classes: list[str] | None = None) -> Data:
        return pictures.image_folder(path, size, channels, classes, 0)

    return read


def ramp(top: int = 255, dtype: type = np.uint8) -> np.ndarray:
    """16 × 16, from 0 at the left to the top of its range at the right."""
    return np.tile(np.linspace(0, top, 16), (16, 1)).round().astype(dtype)


def write_classes(folder: Path, classes: dict[str, int]) -> Path:
    for value, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.fromarray(np.full((9, 12, 3), 50 * value + i, dtype=np.uint8)).save(folder / name / f"{i}.png")
    return folder


# One picture


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_become_eight_by_their_range(suffix: str, tmp_path: Path) -> None:
    Image.fromarray(ramp(65535, np.uint16)).save(tmp_path / f"deep.{suffix}")
    assert np.abs(picture(tmp_path / f"deep.{suffix}")[0].astype(int) - ramp()).max() <= 1


def test_sixteen_bits_of_a_machine_of_the_other_end(tmp_path: Path) -> None:
    file = tmp_path / "deep.tif"
    Image.frombytes("I;16B", (16, 16), ramp(65535, np.uint16).astype(">u2").tobytes()).save(file)
    assert np.abs(picture(file)[0].astype(int) - ramp()).max() <= 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_of_unknown_range_are_refused(dtype: type, tmp_path: Path) -> None:
    Image.fromarray(ramp(255, dtype)).save(tmp_path / "wide.tif")
    with pytest.raises(ValueError, match="32-bit numbers of unknown range"):
        picture(tmp_path / "wide.tif")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "RGBa"])
@pytest.mark.parametrize("ink", [0, 255])
def test_a_shape_that_lives_in_transparency_is_seen(mode: str, ink: int, tmp_path: Path) -> None:
    alpha = np.zeros((16, 16), np.uint8)
    alpha[4:12, 4:12] = 255
    image = Image.fromarray(np.dstack([np.full((16, 16, 3), ink, np.uint8), alpha]))
    if mode == "P":
        image = Image.fromarray(np.where(alpha, 1, 0).astype(np.uint8)).convert("P")
        image.putpalette([ink, ink, ink] * 2)
        image.save(tmp_path / "shape.png", transparency=0)
    else:
        image = image.convert("LA" if mode in ("LA", "PA") else "RGBA")
        image.save(tmp_path / "shape.png")
    pixels = picture(tmp_path / "shape.png", channels=1)[0].astype(int)
    assert pixels[8, 8] == ink
    assert abs(pixels[0, 0] - ink) > 100
    assert picture(tmp_path / "shape.png", channels=3).shape == (3, 16, 16)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_every_colour_mode_is_read(mode: str, tmp_path: Path) -> None:
    file = tmp_path / ("x.tif" if mode in ("CMYK", "YCbCr") else "x.png")
    Image.fromarray(np.where(ramp() > 127, 255, 0).astype(np.uint8)).convert(mode).save(file)
    pixels = picture(file, channels=1)[0].astype(int)
    assert (pixels[:, :7] < 30).all()
    assert (pixels[:, 9:] > 225).all()


def test_a_picture_is_held_up_as_its_camera_was(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    Image.fromarray(ramp()).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert np.abs(picture(tmp_path / "turned.jpg")[0].astype(int) - ramp().T).max() < 20  # left to right, then top down


def test_the_size_and_channels_of_a_picture_stay_where_none_are_asked_for(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.zeros((5, 7, 3), np.uint8)).save(tmp_path / "colour.png")
    assert picture(tmp_path / "grey.png").shape == (1, 5, 7)
    assert picture(tmp_path / "colour.png").shape == (3, 5, 7)
    assert picture(tmp_path / "colour.png", 4, 1).shape == (1, 4, 4)


# What a folder holds


def test_an_image_folder_is_split_resized_and_made_grey(tmp_path: Path, read) -> None:  # noqa: ANN001
    data = read(write_classes(tmp_path, {"cat": 6, "dog": 4}), size=28)
    assert list(data.classes) == ["cat", "dog"]
    assert data.train.inputs.shape == (8, 1, 28, 28)
    assert len(data.test) == 2
    for examples in (data.train, data.test):
        assert ((examples.inputs[:][:, 0, 0, 0] >= 50).long() == examples.targets).all()


@pytest.mark.parametrize(
    ("train", "test"), [("train", "test"), ("Train", "Test"), ("training", "val"), ("train", "validation")]
)
def test_train_and_test_folders_are_taken_as_they_are(train: str, test: str, tmp_path: Path, read, caplog) -> None:  # noqa: ANN001
    write_classes(tmp_path / train, {"a": 3, "b": 2})
    write_classes(tmp_path / test, {"a": 1, "b": 1})
    data = read(tmp_path, channels=3)
    assert data.train.inputs.shape == (5, 3, 8, 8)
    assert data.test.targets.tolist() == [0, 1]
    assert f"training on {train}/, testing on {test}/" in caplog.text


def test_a_test_part_goes_before_a_validation_part_and_what_is_left_is_said(tmp_path: Path, read, caplog) -> None:  # noqa: ANN001
    for part, count in (("train", 4), ("val", 3), ("test", 2), ("unlabelled", 1)):
        write_classes(tmp_path / part, {"a": count, "b": count})
    data = read(tmp_path)
    assert (len(data.train), len(data.test), list(data.classes)) == (8, 4, ["a", "b"])
    assert "passed over: unlabelled, val" in caplog.text


def test_a_train_folder_alone_has_a_fifth_held_out(tmp_path: Path, read) -> None:  # noqa: ANN001
    data = read(write_classes(tmp_path / "train", {"a": 5, "b": 5}).parent)
    assert (len(data.train), len(data.test), list(data.classes)) == (8, 2, ["a", "b"])


def test_a_class_that_is_called_train_is_a_class(tmp_path: Path, read) -> None:  # noqa: ANN001
    assert list(read(write_classes(tmp_path, {"plane": 5, "train": 5})).classes) == ["plane", "train"]


def test_a_test_part_may_lack_a_class_but_has_no_other(tmp_path: Path, read) -> None:  # noqa: ANN001
    write_classes(tmp_path / "train", {"a": 3, "b": 2})
    write_classes(tmp_path / "test", {"b": 1})
    assert read(tmp_path).test.targets.tolist() == [1]
    write_classes(tmp_path / "test", {"c": 1})
    with pytest.raises(InputError, match=r"test has class folders that .*train lacks: c"):
        read(tmp_path)


JUNK = (
    "._0.png",
    ".hidden.png",
    "__MACOSX/x/0.png",
    ".ipynb_checkpoints/0.png",
    "@eaDir/0.png",
    "notes.txt",
    "Thumbs.db",
)


def test_hidden_and_system_names_are_passed_over_at_every_depth(tmp_path: Path, read) -> None:  # noqa: ANN001
    write_classes(tmp_path, {"cat": 3, "dog": 3})
    for place in (tmp_path, tmp_path / "cat", tmp_path / "cat" / "deeper"):
        for name in JUNK:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"no picture")
    data = read(tmp_path)
    assert (list(data.classes), len(data.train) + len(data.test)) == (["cat", "dog"], 6)


def test_pictures_beside_the_class_folders_are_said(tmp_path: Path, read, caplog) -> None:  # noqa: ANN001
    write_classes(tmp_path, {"cat": 3, "dog": 3})
    Image.fromarray(ramp()).save(tmp_path / "loose.png")
    read(tmp_path)
    assert "1 pictures lie beside its class folders and are passed over" in caplog.text


def test_links_are_followed_and_a_circle_of_them_ends(tmp_path: Path, read) -> None:  # noqa: ANN001
    write_classes(tmp_path / "real", {"x": 5})
    write_classes(tmp_path / "data", {"dog": 5})
    (tmp_path / "data" / "cat").symlink_to(tmp_path / "real" / "x")
    (tmp_path / "data" / "dog" / "again").symlink_to(tmp_path / "data" / "dog")
    data = read(tmp_path / "data")
    assert (list(data.classes), len(data.train) + len(data.test)) == (["cat", "dog"], 10)


@pytest.mark.parametrize("names", [{"cat": 5}, {}, {"train": 0}])
def test_fewer_than_two_classes_are_no_classification(names: dict[str, int], tmp_path: Path, read) -> None:  # noqa: ANN001
    with pytest.raises(InputError, match=r"class folders .*needed are two or more"):
        read(write_classes(tmp_path, names))
    with pytest.raises(InputError, match=r"class folders .*needed are two or more"):
        read(write_classes(tmp_path / "other" / "train", {"cat": 5}).parent)


@pytest.mark.parametrize("part", ["test", "val", "Testing"])
def test_a_test_part_without_a_training_part_is_refused(part: str, tmp_path: Path, read) -> None:  # noqa: ANN001
    with pytest.raises(InputError, match=f"holds {part}/ but no train/ with class folders"):
        read(write_classes(tmp_path / part, {"a": 2, "b": 2}).parent)


def test_too_few_pictures_to_hold_any_out(tmp_path: Path, read) -> None:  # noqa: ANN001
    with pytest.raises(InputError, match="holds 2 pictures: too few to hold out a fifth"):
        read(write_classes(tmp_path, {"cat": 1, "dog": 1}))


def test_an_empty_class_folder_is_refused_by_name(tmp_path: Path, read) -> None:  # noqa: ANN001
    with pytest.raises(InputError, match="dog holds no image"):
        read(write_classes(tmp_path, {"cat": 2, "dog": 0}))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, read) -> None:  # noqa: ANN001
    for path, said in ((tmp_path / "nowhere", "is not there"), (None, "is not a folder")):
        with pytest.raises(InputError, match=said):
            read(path)


def test_a_clients_own_folder_may_lack_classes_and_keeps_their_numbers(tmp_path: Path) -> None:
    write_classes(tmp_path / "own", {"dog": 2})
    examples = pictures.read_folder(tmp_path / "own", 8, 1, ["cat", "dog"], missing_ok=True)
    assert examples.targets.tolist() == [1, 1]


# Broken pictures


def cut_in_half(file: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


BROKEN: dict[str, Callable[[Path], None]] = {
    "empty": lambda file: file.write_bytes(b""),
    "junk": lambda file: file.write_bytes(os.urandom(500)),
    "text": lambda file: file.write_text("<html>404</html>"),
    "half a picture": cut_in_half,
    "a link to nothing": lambda file: file.symlink_to(file.parent / "gone"),
    "a pipe": lambda file: os.mkfifo(file),
    "a bomb": lambda file: Image.new("1", (20000, 20000)).save(file),
    "32-bit numbers": lambda file: Image.fromarray(ramp(9, np.int32)).save(file, "TIFF"),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_picture_is_named(kind: str, tmp_path: Path, read) -> None:  # noqa: ANN001
    write_classes(tmp_path, {"cat": 3, "dog": 3})
    BROKEN[kind](tmp_path / "dog" / "x.png")
    with pytest.raises(InputError, match=r"dog/x\.png cannot be read as a picture \(.+\): mend it") as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("x.png") == 1


# The cache


def decodes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    original = picture

    def counted(file: Path, *args: object) -> np.ndarray:
        seen.append(file)
        return original(file, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "picture", counted)
    return seen


def same(a: Examples, b: Examples) -> bool:
    return torch.equal(a.inputs[:], b.inputs[:]) and torch.equal(a.targets, b.targets)


def test_pictures_are_decoded_once_and_again_when_anything_has_changed(
    tmp_path: Path,
    read,  # noqa: ANN001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = decodes(monkeypatch)
    write_classes(tmp_path, {"cat": 6, "dog": 4})
    first, again = read(tmp_path), read(tmp_path)
    assert same(first.train, again.train)
    assert len(seen) == 10
    Image.fromarray(ramp()).save(tmp_path / "cat" / "0.png")
    assert not same(read(tmp_path).train, first.train) or not same(read(tmp_path).test, first.test)
    assert len(seen) == 20
    read(tmp_path, size=9)
    assert len(seen) == 30


@pytest.mark.parametrize("damage", ["cut", "empty", "no list", "gone"])
def test_a_damaged_cache_is_made_anew(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(tmp_path / "data", {"cat": 6, "dog": 4})

    def read() -> Examples:
        return pictures.read_folder(tmp_path / "data", 8, 1, ["cat", "dog"])

    whole = read()
    images, about = (next(store.cache().glob(f"images/*.{kind}")) for kind in ("images", "json"))
    if damage == "gone":
        images.unlink()
    else:
        file = about if damage == "no list" else images
        file.write_bytes({"cut": images.read_bytes()[:-1], "empty": b"", "no list": b"[]"}[damage])
    assert same(read(), whole)
    seen = decodes(monkeypatch)
    read()
    assert not seen


def test_a_cache_that_cannot_be_written_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:  # noqa: ANN001
    write_classes(tmp_path / "data", {"cat": 6, "dog": 4})
    (tmp_path / "no folder").write_text("")
    for cache in (tmp_path / "no folder", Path("/proc")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        examples = pictures.read_folder(tmp_path / "data", 8, 1, ["cat", "dog"])
        assert examples.targets.tolist() == [0] * 6 + [1] * 4
        assert "cannot be kept in" in caplog.text

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    examples = pictures.read_folder(tmp_path / "data", 8, 1, ["cat", "dog"], tmp_path / "no folder" / "images")
    assert examples.inputs[:][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 50, 51, 52, 53]


def test_many_images_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(tmp_path / "data", {"cat": 6, "dog": 4})

    def read() -> Examples:
        return pictures.read_folder(tmp_path / "data", 8, 1, ["cat", "dog"])

    small = read()
    monkeypatch.setattr("fedmuon_app.data.store.IN_MEMORY", 0)
    stored = read()
    assert isinstance(stored.inputs, StoredImages)
    assert stored.inputs.shape == small.inputs.shape
    assert same(stored, small)
    order = np.array([7, 0, 7, 3])
    assert same(stored.at(order), small.at(order))
    assert same(stored.subset(order), small.subset(order))
    assert same(stored.subset(order).at(np.array([2, 0])), small.at(np.array([7, 7])))
    assert same(stored.part(slice(2, 5)), small.part(slice(2, 5)))
    kept, held = held_out(len(stored), 0.3, np.random.default_rng(0))
    assert sorted([*kept, *held]) == list(range(10))
    assert len(held) == 3
    assert isinstance(stored.subset(kept).inputs, StoredImages)


def test_only_its_owner_may_read_decoded_pictures(tmp_path: Path) -> None:
    write_classes(tmp_path / "data", {"cat": 2, "dog": 2})
    pictures.read_folder(tmp_path / "data", 8, 1, ["cat", "dog"])
    (file,) = store.cache().glob("images/*.images")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
