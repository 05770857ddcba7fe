import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.predict import export, main, trained

WORDS = ["rounds=3", "engine.workers=0", "checkpoint.every=null", "algorithm.lr=0.01"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict") / "run"
    in_process.run(load(WORDS), folder)
    return folder


@pytest.fixture(scope="module")
def pictures(run: Path) -> list[Path]:
    """Of the test set, as files."""
    test = build(load(WORDS)).data.test
    files = []
    for i, image in enumerate(test.part(slice(0, 20)).inputs):
        files.append(run.parent / f"{i}.png")
        Image.fromarray(image[0].numpy()).save(files[-1])
    return files


def test_the_probabilities_are_those_of_the_run_itself(run: Path, pictures: list[Path]) -> None:
    experiment = build(load(WORDS))
    objective, test = experiment.clients.objective, experiment.data.test.part(slice(0, 20))
    objective.model.load_state_dict(load_file(run / "model.safetensors"))
    with torch.no_grad():
        expected = objective.model.eval()(objective.inputs(test.inputs)).softmax(1)
    torch.testing.assert_close(trained(run).probabilities(pictures), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 7])
def test_onnx_says_the_same(count: int, run: Path, pictures: list[Path]) -> None:
    model, file = trained(run), run.parent / "model.onnx"
    export(model, file)
    pixels = np.stack([np.asarray(Image.open(p), dtype=np.float32)[None] for p in pictures[:count]])
    (said,) = onnxruntime.InferenceSession(file).run(["probabilities"], {"pixels": pixels})
    np.testing.assert_allclose(said, model.probabilities(pictures[:count]).numpy(), atol=1e-4)


def test_torch_export_says_the_same(run: Path, pictures: list[Path]) -> None:
    model, file = trained(run), run.parent / "model.pt2"
    export(model, file)
    pixels = torch.stack([torch.from_numpy(np.asarray(Image.open(p), dtype=np.float32))[None] for p in pictures[:5]])
    torch.testing.assert_close(torch.export.load(file).module()(pixels), model.probabilities(pictures[:5]))


def test_the_commands(run: Path, pictures: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["predict", str(run), str(pictures[0]), str(pictures[1]), "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.pop("file") for line in lines] == [str(p) for p in pictures[:2]]
    assert [sum(line.values()) for line in lines] == pytest.approx([1.0, 1.0], abs=1e-5)
    main(["predict", str(run), str(pictures[0]), "--top", "2"])
    assert len(re.findall(r"│ 0\.\d{3} +│", capsys.readouterr().out)) == 2
    words = ["export", str(run), str(run.parent / "x.pt2")]
    done = subprocess.run([sys.executable, "-m", "fedmuon_app", *words], capture_output=True, text=True, check=True)
    assert "pixels float[B, 1, 28, 28] in 0 … 255 to probabilities of 10 classes: 0, 1, 2" in done.stdout


def test_a_picture_of_another_size_and_kind_is_fitted(run: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((90, 60, 3), 200, np.uint8)).save(tmp_path / "large.jpg")
    assert trained(run).probabilities([tmp_path / "large.jpg"]).shape == (1, 10)
    words = ["predict", str(run), str(tmp_path / "large.jpg")]
    done = subprocess.run([sys.executable, "-m", "fedmuon_app", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_what_cannot_be_used_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no complete run: model\.json is not there"):
        trained(tmp_path)
    with pytest.raises(InputError, match=r"no\.png cannot be read as a picture"):
        trained(run).probabilities([tmp_path / "no.png"])
    with pytest.raises(InputError, match=r"model\.h5: must end in \.onnx or \.pt2"):
        export(trained(run), tmp_path / "model.h5")
    with pytest.raises(InputError, match="it cannot be written"):
        export(trained(run), tmp_path / "no" / "model.onnx")
    about = (run / "model.json").read_text()
    for name, content, why in (
        ("model.json", "{", "its model cannot be read"),
        ("model.json", about.replace('"padding": 2', '"padding": 0'), "is not of the model"),
        (
            "model.json",
            about.replace("fedmuon_app.models.lenet.LeNet", "os.system"),
            "the module os is",
        ),
        ("model.safetensors", "junk", "its model cannot be read"),
    ):
        folder = tmp_path / why
        folder.mkdir(exist_ok=True)
        for file in ("model.json", "model.safetensors"):
            (folder / file).write_bytes((run / file).read_bytes())
        (folder / name).write_text(content)
        with pytest.raises(InputError, match=why):
            trained(folder)
