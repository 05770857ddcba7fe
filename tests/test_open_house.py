"""A method, data, split, model, aggregation and tracker of one's own, from an empty folder, in every engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment.cluster import cluster

pytestmark = pytest.mark.slow

METHOD = Path(__file__).parents[1] / "examples" / "own_method"
OWN = '''
"""Blobs of four kinds in pictures of 12 × 12, and all that trains on them."""
import json

import torch
from flwr_datasets.partitioner import Partitioner
from torch import nn

from fedmuon_app import Callback
from fedmuon_app.algorithms.aggregation import Rule


class Blobs:
    def __init__(self, count: int) -> None:
        self.train, self.test = self.part(count, 0), self.part(count // 4, 1)

    def part(self, count: int, seed: int) -> list[tuple[torch.Tensor, int]]:
        draw = torch.Generator().manual_seed(seed)
        found = []
        for k in torch.randint(4, (count,), generator=draw).tolist():
            x = torch.randn(1, 12, 12, generator=draw) * 0.3
            x[:, 6 * (k // 2) : 6 * (k // 2) + 6, 6 * (k % 2) : 6 * (k % 2) + 6] += 1
            found.append((x, k))
        return found


class Net(nn.Sequential):
    def __init__(self, num_classes: int) -> None:
        super().__init__(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, num_classes))


class Turns(Partitioner):
    def __init__(self, num_partitions: int, examples: int, block: int) -> None:
        super().__init__()
        self.n, self.examples, self.block = num_partitions, examples, block

    @property
    def num_partitions(self) -> int:
        return self.n

    def load_partition(self, partition_id: int):
        return self.dataset.select([k for k in range(self.examples) if k // self.block % self.n == partition_id])


class Middle(Rule):
    by_coordinate = True

    def centre(self, rows):
        return (torch.stack(list(rows)).amax(0) + torch.stack(list(rows)).amin(0)) / 2


class Diary(Callback):
    def __init__(self, folder, name: str) -> None:
        self.file = folder / name

    def after_evaluation(self, line) -> None:
        self.file.open("a").write(json.dumps(line["round"]) + "\\n")
'''
WORDS = [
    "--config-dir", "conf", "algorithm=soap", "dataset=custom", "dataset._target_=own.Blobs", "+dataset.args.count=400",
    "model=custom", "model._target_=own.Net", "+model.num_classes=null",
    "partition=custom", "partition._target_=own.Turns", "+partition.args.block=7",
    "federation.aggregate={_target_:own.Middle}", "tracker={_target_:own.Diary,name:diary}",
    "federation.num_clients=4", "federation.clients_per_round=4", "rounds=3", "evaluation.every=3",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(METHOD, folder / "conf")
    (folder / "own.py").write_text(OWN)
    return folder


def fedmuon(place: Path, *words: str) -> str:
    command = [sys.executable, "-m", "fedmuon_app", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(place: Path) -> bytes:
    """X of the run in one process."""
    fedmuon(place, *WORDS, "engine.workers=0", "hydra.run.dir=alone")
    return (place / "alone" / "model.safetensors").read_bytes()


def test_in_a_sweep_and_in_its_report(place: Path, model: bytes) -> None:
    words = [word if word != "algorithm=soap" else "algorithm=soap,fedmuon" for word in WORDS]
    fedmuon(place, "-m", *words, "hydra.sweep.dir=sweep")
    (soap,) = (place / "sweep").glob("*soap*")
    assert (soap / "model.safetensors").read_bytes() == model
    command = [sys.executable, "-c", "from fedmuon_app.report.cli import main; main()", "sweep"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert "| FedSOAP |" in done.stdout
    page = (place / "sweep" / "report" / "index.html").read_text()
    assert "FedSOAP" in page
    assert "#aa3377" in page.lower()


def test_on_ray(place: Path, model: bytes) -> None:
    fedmuon(place, *WORDS, "engine=simulation", "hydra.run.dir=ray")
    assert (place / "ray" / "model.safetensors").read_bytes() == model
    assert [(place / run / "diary").read_text() for run in ("alone", "ray")] == ["3\n"] * 2


@pytest.mark.timeout(600)
def test_on_supernodes(place: Path, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which allow these two modules, and have them on their path."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place), str(place / "conf" / "algorithm")]))
    with cluster(tmp_path, 2, more='allow="soap,own"') as one:
        words = [word.replace("conf", str(place / "conf")) if word == "conf" else word for word in WORDS]
        process = one.fedmuon(tmp_path / "run", *words, "federation.connect_timeout=90")
        said, _ = process.communicate()
        assert process.returncode == 0, said
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == model
    assert json.loads((tmp_path / "run" / "result.json").read_text())["dropped"] == {}


def test_what_is_named_and_is_none_is_one_sentence(place: Path) -> None:
    for word, why in (
        ("algorithm.step._target_=own.Nothing", "cannot be built"),
        ("algorithm.step._target_=own.Blobs +algorithm.step.count=8", "cannot take a step"),
        ("federation.aggregate={_target_:own.Blobs,count:8}", "must be a fedmuon_app.algorithms.aggregation.Rule"),
        ("tracker={_target_:own.Net,num_classes:2}", "tracker._target_ = own.Net cannot be built"),
        ("tracker={_target_:builtins.dict}", "must be a fedmuon_app.Callback"),
        ("partition._target_=own.Net", "cannot be dealt to 4 clients"),
    ):
        others = [other for other in WORDS[2:] if other.split("=")[0] != word.split("=")[0]]
        command = [sys.executable, "-m", "fedmuon_app", *others, "algorithm=fedmuon", *word.split()]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
        assert done.stderr.count("\n") == 1
