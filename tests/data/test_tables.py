"""Tables and texts."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedmuon_app.config import load
from fedmuon_app.data.tables import table, text
from fedmuon_app.dry_run import show
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    age, hospital = rng.integers(20, 80, 100), rng.choice(["north", "south", "west"], 100)
    rows = pd.DataFrame(
        {"age": age, "dose": rng.random(100), "hospital": hospital, "note": [f"n{i}" for i in range(100)]}
    )
    rows.loc[3, "dose"] = np.nan
    rows["note"] = [f"note {i} {i}" for i in range(100)]
    rows["ill"] = np.where(age > 50, "yes", "no")
    rows["cost"] = age * 1.5
    rows.to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def test_numbers_are_scaled_and_words_become_numbers(patients: Path) -> None:
    data = table(patients, "ill", 0, quantities=False)
    assert (len(data.train), len(data.test), list(data.classes)) == (80, 20, ["no", "yes"])
    x = data.train.inputs
    assert isinstance(x, torch.Tensor)
    assert x.shape == (80, 2 + 3 + 1)  # age, dose, a number a hospital, cost; notes are names
    torch.testing.assert_close(x[:, 0].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(x[:, 0].std(), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert set(x[:, 2:5].sum(1).tolist()) == {1.0}
    assert x.isfinite().all()
    assert set(data.columns["hospital"]) == {"north", "south", "west"}
    rows = pd.read_csv(patients)
    assert len(data.columns["hospital"]) == 80
    assert sorted(data.columns["note"]) != sorted(rows.note)


def test_a_folder_has_its_own_test_part(patients: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(patients)
    (tmp_path / "parts").mkdir()
    rows[:70].to_csv(tmp_path / "parts" / "train.csv", index=False)
    rows[70:].to_csv(tmp_path / "parts" / "test.csv", index=False)
    data = table(tmp_path / "parts", "cost", 0, quantities=True)
    assert (len(data.train), len(data.test), list(data.classes)) == (70, 30, ["cost"])
    assert data.test.targets[:, 0].tolist() == rows.cost[70:].tolist()


@pytest.mark.parametrize(
    ("target", "quantities", "why"),
    [
        ("wealth", False, "has columns age, dose, hospital"),
        ("dose", False, "1 rows of .* lack it"),
        ("ill", True, "is no column of numbers"),
    ],
)
def test_a_target_that_is_none(patients: Path, target: str, quantities: bool, why: str) -> None:
    with pytest.raises(InputError, match=why):
        table(patients, target, 0, quantities)


def test_files_that_are_not_there_or_no_tables(tmp_path: Path) -> None:
    for load_ in (lambda path: table(path, "y", 0, False), lambda path: text(path, 8)):
        with pytest.raises(InputError, match=r"dataset\.path = .*nowhere: must be"):
            load_(tmp_path / "nowhere")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        table(tmp_path / "x.csv", "y", 0, False)
    (tmp_path / "x.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read as UTF-8"):
        text(tmp_path / "x.txt", 8)


def test_a_hospital_a_client(patients: Path, tmp_path: Path) -> None:
    words = ["dataset=csv", f"dataset.path={patients}", "dataset.target=ill", "partition=column",
             "partition.column=hospital", "federation.clients_per_round=2", "rounds=3", "engine.workers=0"]  # fmt: skip
    with pytest.raises(InputError, match=r"partition = column: it deals to 3 clients: federation.num_clients=3"):
        build(load(words))
    with pytest.raises(InputError, match=r"partition.column = town: the data has age"):
        build(load([*words, "partition.column=town", "federation.num_clients=3"]))
    c = load([*words, "federation.num_clients=3"])
    experiment = build(c)
    for part in experiment.clients.parts:
        assert len({experiment.data.columns["hospital"][i] for i in part}) == 1
    in_process.run(c, tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()
    with pytest.raises(InputError, match="have no single label to be dealt by"):
        build(
            load([*words, "federation.num_clients=3", "partition=dirichlet", "task=regression", "dataset.target=cost"])
        )


def test_texts_are_cut_into_characters_and_those_that_follow(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefghij" * 10)
    (tmp_path / "b.txt").write_text("jihgf" * 10)
    data = text(tmp_path, 4)
    assert "".join(data.classes) == "abcdefghij"
    x, y = data.train.inputs, data.train.targets
    assert isinstance(x, torch.Tensor)
    assert x.shape == y.shape == ((90 - 1) // 4 + (45 - 1) // 4, 4)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert "".join(data.classes[k] for k in x[1]) == "efgh"  # from where the last one ended
    assert [data.columns["file"].count(name) for name in ("a", "b")] == [22, 11]
    assert "".join(data.classes[k] for k in data.test.inputs[0]) == "abcd"  # type: ignore[index,call-overload]
    with pytest.raises(InputError, match=r"long enough for dataset.length = 1000"):
        text(tmp_path, 1000)


def test_a_gpt_learns_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 60)
    (tmp_path / "b.txt").write_text("a dog in the fog. " * 80)
    c = load([
        "dataset=text", f"dataset.path={tmp_path}", "dataset.length=16", "partition=column", "partition.column=file",
        "federation.num_clients=2", "federation.clients_per_round=2", "rounds=30", "evaluation.every=10",
        "model.width=32", "model.heads=2", "model.layers=1", "algorithm.lr=0.02", "algorithm.vector_lr=0.2",
        "engine.workers=0", "local.batch_size=16",
    ])  # fmt: skip
    in_process.run(c, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert list(lines[0])[:4] == ["round", "test_loss", "test_accuracy", "test_perplexity"]
    assert lines[-1]["test_perplexity"] < min(1.5, lines[0]["test_perplexity"])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["metric"], result["best"]) == ("test_loss", min(line["test_loss"] for line in lines))


def test_a_text_has_no_classes_to_be_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 60)
    words = ["dataset=text", f"dataset.path={tmp_path}", "partition=iid", "federation.num_clients=2",
             "federation.clients_per_round=2", "dataset.length=8", "rounds=2", "engine.workers=0"]  # fmt: skip
    with pytest.raises(InputError, match="confusion = true: only a classification has classes"):
        build(load([*words, "evaluation.confusion=true"]))
    show(load(words), tmp_path / "dry")
    said = json.loads((tmp_path / "dry" / "dry_run.json").read_text())["clients"]
    assert said["classes"] == ["examples"]
    assert list(said["labels"].values()) == [[len(part)] for part in build(load(words)).clients.parts]
