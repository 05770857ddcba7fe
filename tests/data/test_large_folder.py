"""A folder of pictures larger than what a process may take."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn


class Small(nn.Sequential):
    """Few parameters, so that the memory is the pictures'."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 28 * 28, 2))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = super().forward(x)
        return scores


PROGRAM = """
import resource, sys
from fedmuon_app.cli import main
main()
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "kB")
"""


@pytest.mark.long
def test_twenty_thousand_pictures_of_224_pixels_take_less_than_a_gibibyte_and_a_half(tmp_path: Path) -> None:
    """3.0 GB decoded. Two classes of 100 pictures each, under 100 names each."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(100):
            pixels = rng.integers(100 * label, 100 * label + 60, (224, 224, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{name}{i}.jpg", quality=50)
            for j in range(100):
                os.link(tmp_path / f"{name}{i}.jpg", tmp_path / "data" / name / f"{i}-{j}.jpg")
    words = [
        "dataset=image_folder", f"dataset.path={tmp_path}/data", "dataset.size=224", "dataset.channels=3",
        "rounds=10", "evaluation.every=10", "engine.workers=0", "model=custom",
        "model._target_=tests.data.test_large_folder.Small", "local.batch_size=16", "algorithm=fedavg",
        "algorithm.lr=0.01", f"hydra.run.dir={tmp_path}/run",
    ]  # fmt: skip
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": root}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run" / "result.json").exists()
    stored = sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*.images"))
    assert stored == 20_000 * 3 * 224 * 224
    peak = int(run.stdout.split("peak ")[1].split()[0])
    print(f"peak {peak / 2**20:.2f} GiB")
    assert peak < 1.5 * 2**20
