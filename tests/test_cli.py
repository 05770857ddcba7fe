import json
import sys
from pathlib import Path

import pytest

from fedmuon_app import cli
from fedmuon_app.config import Config
from fedmuon_app.engines import ENGINES

SMALL = ["rounds=2", "evaluation.every=1", "local.steps=1", "local.batch_size=8"]


@pytest.fixture
def fedmuon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.Failures, "files", [])

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["fedmuon", *words])
        cli.main()

    return run


def refused(fedmuon, capsys: pytest.CaptureFixture[str], *words: str) -> str:  # noqa: ANN001
    with pytest.raises(SystemExit) as stop:
        fedmuon(*words)
    assert stop.value.code in (1, 2)
    out, err = capsys.readouterr()
    assert "round" not in out  # before any training
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("federation.clients_per_round=17", "federation.clients_per_round = 17"),
        ("partition.beta=0", "partition.beta = 0"),
        ("algorithm.lmo.steps=-1", "algorithm.lmo.steps = -1"),
        ("algorithm.lr=0", "algorithm.lr = 0"),
        ("algorithm=fedprox", "fedavg, fedavg_adam, fedmuon, localmuon, muloco, scaffold, scaffold_adam"),
        ("sead=1", "sead is no key"),
        ("dataset.path=/nowhere", "dataset.path = /nowhere is not there"),
        ("device=cuda:99", "device = cuda:99: torch sees"),
        ("engine=deployment", "engine.superlink = None: must be ADDRESS:PORT of the SuperLink"),
        ("dataset=image_folder", "dataset.path = None is not a folder"),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(fedmuon, capsys, word: str, said: str) -> None:  # noqa: ANN001
    assert said in refused(fedmuon, capsys, *SMALL, word)


def test_a_bad_value_in_a_sweep_stops_it_before_its_first_run(fedmuon, capsys, tmp_path: Path) -> None:  # noqa: ANN001
    assert "algorithm.lr = -1.0" in refused(fedmuon, capsys, "-m", *SMALL, "algorithm.lr=0.1,-1")
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_run_and_its_folder(fedmuon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN001
    fedmuon(*SMALL, "hydra.run.dir=here")
    assert f"results: {tmp_path / 'here'}" in capsys.readouterr().out
    assert {".hydra", "metrics.jsonl", "result.json", "model.safetensors"} <= {
        entry.name for entry in (tmp_path / "here").iterdir()
    }


def test_a_run_goes_on_by_its_folder_alone(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    fedmuon(*SMALL, "algorithm=localmuon", "run_dir=here", "hydra.run.dir=a")
    fedmuon("resume=here", "rounds=3", "hydra.run.dir=b")
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert (result["algorithm"], result["rounds"], result["config"]["local"]["steps"]) == ("localmuon", 3, 1)
    capsys.readouterr()
    fedmuon("resume=here", "hydra.run.dir=b")  # complete
    out, _ = capsys.readouterr()
    assert out.splitlines() == [f"results: {tmp_path / 'here'}"]
    for words, said in (
        (["resume=nowhere"], "there is no checkpoint.safetensors in it"),
        (["resume=here", "seed=3"], "seed = 3: the run to resume in"),
        (["run_dir=here", *SMALL], "holds a run already: choose another folder, or go on with resume"),
        (["run_dir=here", "resume=auto", *SMALL], "algorithm.name = fedmuon: the run to resume in"),
    ):
        assert said in refused(fedmuon, capsys, *words, "hydra.run.dir=b")


def test_an_interrupted_sweep_runs_what_is_missing(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    words = ["-m", *SMALL, "seed=0,1,2", "resume=auto", f"hydra.sweep.dir={tmp_path}/sweep"]
    fedmuon(*words)
    one, two, _ = runs = sorted((tmp_path / "sweep").glob("*-fedmuon"))
    (two / "result.json").unlink()  # as if it had been killed at its very end
    for file in runs[2].iterdir():  # as if it had never begun
        if file.is_file():
            file.unlink()
    before = (one / "result.json").stat().st_mtime_ns
    fedmuon(*words)
    assert (one / "result.json").stat().st_mtime_ns == before
    assert all((run / "result.json").exists() for run in runs)


def test_a_sweep_has_a_folder_a_run(fedmuon, tmp_path: Path) -> None:  # noqa: ANN001
    fedmuon("-m", *SMALL, "algorithm=fedmuon,localmuon", "seed=0,1", f"hydra.sweep.dir={tmp_path}/sweep")
    results = [json.loads(file.read_text()) for file in sorted((tmp_path / "sweep").rglob("result.json"))]
    assert [(r["algorithm"], r["seed"]) for r in results] == [
        ("fedmuon", 0), ("fedmuon", 1), ("localmuon", 0), ("localmuon", 1),
    ]  # fmt: skip
    assert {r["config"]["engine"]["workers"] for r in results} == {0}


def test_a_sweep_goes_on_when_a_run_diverges_and_says_so_at_its_end(fedmuon, tmp_path: Path, capsys) -> None:  # noqa: ANN001
    rates = "algorithm.lr=1e30,0.1"
    with pytest.raises(SystemExit) as stop:
        fedmuon("-m", *SMALL[1:], "rounds=4", "algorithm=fedavg", "algorithm.momentum=heavy_ball", rates,
                "local.steps=2", f"hydra.sweep.dir={tmp_path}/sweep")  # fmt: skip
    assert stop.value.code == 1
    assert "1 of the sweep's runs failed" in capsys.readouterr().err.splitlines()[-1]
    (reason,) = (tmp_path / "sweep").glob("0-fedavg/failed.json")
    said = json.loads(reason.read_text())
    assert "the step size is too large" in said["failed"]
    (finished,) = (tmp_path / "sweep").rglob("result.json")
    result = json.loads(finished.read_text())
    config = result["config"]
    assert said["versions"] == result["versions"]
    assert config["algorithm"]["lr"] == 0.1
    assert said["config"].keys() == config.keys()
    assert said["config"]["algorithm"] == {**config["algorithm"], "lr": 1e30}


def test_what_a_refused_process_says_of_a_folder_in_use_is_gone_when_the_run_there_completes(
    fedmuon,  # noqa: ANN001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = ENGINES["in_process"]

    def train_while_another_is_refused(config: Config, folder: Path) -> None:
        (folder / "failed.json").write_text("{}")
        train(config, folder)

    monkeypatch.setitem(ENGINES, "in_process", train_while_another_is_refused)
    fedmuon("-m", *SMALL, f"hydra.sweep.dir={tmp_path}", "hydra/launcher=basic")
    (folder,) = tmp_path.glob("0-*")
    assert (folder / "result.json").exists()
    assert not (folder / "failed.json").exists()


def test_the_runs_of_a_sweep() -> None:
    assert list(cli.runs(["seed=0,1", "rounds=3"], multirun=True)) == [["seed=0", "rounds=3"], ["seed=1", "rounds=3"]]
    assert list(cli.runs(["seed=0"], multirun=False)) == [["seed=0"]]
    assert len(list(cli.runs(["seed=range(3)", "algorithm=fedavg,scaffold"], multirun=True))) == 6
