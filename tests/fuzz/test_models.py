"""Whatever model is brought: it trains with right numbers, or one sentence says what is wrong before training."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedmuon_app.config import Config, load
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from tests.fuzz import models

NOT_TRAINED = {  # by model: its parameters that keep their values
    "Frozen": ["one.weight", "one.bias"],
    "FrozenHalf": ["one.weight", "one.bias"],
    "FrozenBias": ["two.bias"],
    "Unused": ["spare.weight", "spare.bias"],
    "Detached": ["one.weight", "one.bias"],
    "EmptyParameter": ["nothing"],
    "TiedFrozen": ["first.weight", "last.weight"],
}


def configured(name: str, *words: str) -> Config:
    return load(
        ["model=custom", f"model._target_=tests.fuzz.models.{name}", "rounds=2", "local.steps=2", "local.batch_size=5",
         "engine.workers=0", "evaluation.every=2", *words]
    )  # fmt: skip


@pytest.mark.parametrize("name", models.SENTENCES)
def test_what_cannot_be_trained_is_one_sentence_before_training(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        in_process.run(configured(name), tmp_path / "run")
    assert models.SENTENCES[name] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", models.TRAIN)
@pytest.mark.parametrize("algorithm", ["fedmuon", "scaffold_adam"])
def test_the_others_train_and_load_again(name: str, algorithm: str, tmp_path: Path) -> None:
    c = configured(name, f"algorithm={algorithm}")
    before = dict(build(c).model(build(c).server.X))
    in_process.run(c, tmp_path)
    after = load_file(tmp_path / "model.safetensors")
    model = getattr(models, name)()
    model.load_state_dict(after, strict=True)
    still = [w for w, _ in parameters(model) if same(after[w], before[w])]
    assert still == NOT_TRAINED.get(name, [])
    assert all(same(after[b], x) for b, x in before.items() if b in dict(model.named_buffers()))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["dropped"] == {}
    trained = sum(x.numel() for w, x in model.named_parameters() if w not in still)
    bytes_a_number = 8 if name == "Double" else 4
    assert (
        result["bytes_up"] == result["bytes_down"] == 2 * 8 * 2 * trained * bytes_a_number
    )  # rounds, clients, X and C


def parameters(model: torch.nn.Module) -> list[tuple[str, Tensor]]:
    return list(model.named_parameters(remove_duplicate=False))


def same(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.nan_to_num(), y.nan_to_num())


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    in_process.run(configured("Tied"), tmp_path)
    after: Mapping[str, Tensor] = load_file(tmp_path / "model.safetensors")
    assert torch.equal(after["first.weight"], after["last.weight"])
    assert build(configured("Tied")).clients.objective.layout.sizes == [7840]


def test_a_frozen_backbone_is_what_the_seed_or_its_class_made_it_in_every_process(tmp_path: Path) -> None:
    in_process.run(configured("Frozen"), tmp_path / "alone")
    in_process.run(configured("Frozen", "engine.workers=2"), tmp_path / "workers")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "workers")]
    assert files[0] == files[1]


def test_what_a_model_needs_to_be_used_stands_beside_it(tmp_path: Path) -> None:
    c = load(["rounds=1", "local.steps=1", "engine.workers=0", "model.group_norm=true"])
    in_process.run(c, tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["classes"] == [str(i) for i in range(10)]
    assert about["input"] == {"shape": [1, 28, 28], "mean": [0.15], "std": [0.3]}
    arguments = about["model"]
    assert arguments.pop("_target_") == "fedmuon_app.models.lenet.LeNet"
    from fedmuon_app.models.lenet import LeNet

    model = LeNet(**arguments)
    model.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    images = build(c).data.test.inputs[:].float() / 255
    scores = model((images - about["input"]["mean"][0]) / about["input"]["std"][0])
    right = (scores.argmax(1) == build(c).data.test.targets).float().mean()
    assert float(right) == pytest.approx(json.loads((tmp_path / "result.json").read_text())["final_accuracy"])
