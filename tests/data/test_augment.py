import numpy as np
import pytest
import torch

from fedmuon_app.data.augment import augment

IMAGES = torch.arange(2 * 3 * 6 * 5, dtype=torch.uint8).reshape(2, 3, 6, 5) + 1


def test_none_changes_nothing() -> None:
    assert augment(IMAGES, "none", np.random.default_rng(0)) is IMAGES


@pytest.mark.parametrize("kind", ["crop", "crop_flip"])
def test_each_image_is_a_shifted_or_mirrored_copy_on_black(kind: str) -> None:
    seen = set()
    for seed in range(200):
        result = augment(IMAGES, kind, np.random.default_rng(seed), padding=1)
        assert result.shape == IMAGES.shape
        assert result.dtype == torch.uint8
        for image, original in zip(result, IMAGES, strict=True):
            padded = torch.nn.functional.pad(original, (1, 1, 1, 1))
            crops = {
                (top, left, flip): crop.flip(2) if flip else crop
                for top in range(3)
                for left in range(3)
                for flip in range(1 + (kind == "crop_flip"))
                for crop in [padded[:, top : top + 6, left : left + 5]]
            }
            matches = [key for key, crop in crops.items() if torch.equal(image, crop)]
            assert len(matches) == 1
            seen.add(matches[0])
    assert len(seen) == 9 * (1 + (kind == "crop_flip"))


def test_the_generator_decides() -> None:
    first, second = (augment(IMAGES, "crop_flip", np.random.default_rng(3)) for _ in range(2))
    assert torch.equal(first, second)
