import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.federation.loop import NoGoodReplyError

SMALL = ["rounds=4", "evaluation.every=2", "local.steps=2", "local.batch_size=16"]


@pytest.mark.parametrize("algorithm", METHODS)
def test_the_same_seed_gives_the_same_bytes(algorithm: str, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        in_process.run(load([*SMALL, f"algorithm={algorithm}", f"seed={seed}"]), tmp_path / name)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_the_runs_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_process.run(load(SMALL), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "metrics.jsonl", "result.json", "model.safetensors", "cohorts.jsonl", "checkpoint.safetensors",
        "clients", "model.json", "labels.csv",
    }  # fmt: skip
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["algorithm"], result["dataset"], result["seed"], result["rounds"]) == ("fedmuon", "digits", 0, 4)
    assert result["config"]["local"]["steps"] == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1] for line in lines] == ["round 2/4", "round 4/4"]


def test_divergence_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    diverging = load([*SMALL, "algorithm=fedavg", "algorithm.lr=1e30", "algorithm.momentum=heavy_ball"])
    with pytest.raises(NoGoodReplyError, match="the step size is too large"):
        in_process.run(diverging, tmp_path)


@pytest.mark.slow
def test_fedmuon_learns_the_digits_of_heterogeneous_clients(tmp_path: Path) -> None:
    larger_steps = ["algorithm.lr=0.004", "algorithm.vector_lr=0.04"]  # than the paper's, for a short test
    in_process.run(load(["rounds=20", "evaluation.every=20", *larger_steps]), tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["final_accuracy"] > 0.7


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", METHODS)
def test_a_gpu_gives_the_cpus_X_up_to_rounding(algorithm: str, tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        in_process.run(load([*SMALL, f"algorithm={algorithm}", f"device={device}"]), tmp_path / device)
    X, Y = (load_file(tmp_path / device / "model.safetensors") for device in ("cpu", "cuda"))
    for w, x in X.items():
        assert (Y[w] - x).norm() < 1e-2 * x.norm()
