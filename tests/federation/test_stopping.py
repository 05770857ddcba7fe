import json
from pathlib import Path
from typing import Any

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.federation.stopping import Stopping

WORDS = ["evaluation.every=1", "engine.workers=0", "algorithm.lr=0.01", "checkpoint.every=3"]


def lines(*accuracies: float, **more: Any) -> list[dict[str, Any]]:
    found = []
    for r, accuracy in enumerate(accuracies, start=1):
        line = {
            "round": r,
            "test_accuracy": accuracy,
            "test_loss": 1 - accuracy,
            "train_loss": None,
            "seconds": 10.0 * r,
        }
        found.append(line | {"bytes_up": 100 * r, "bytes_down": 200 * r} | more)
    return found


@pytest.mark.parametrize(
    ("rules", "accuracies", "why"),
    [
        (Stopping(), [0.1, 0.99], None),
        (Stopping(accuracy=0.9), [0.1, 0.89], None),
        (Stopping(accuracy=0.9), [0.1, 0.9], r"test_accuracy = 0.9000 has reached stop.accuracy = 0.9"),
        (Stopping(metric="test_loss", value=0.2), [0.1, 0.7], None),
        (Stopping(metric="test_loss", value=0.2), [0.1, 0.81], "test_loss = 0.19 has reached stop.value = 0.2"),
        (Stopping(value=0.5), [0.1, 0.5], "test_accuracy = 0.5 has reached stop.value = 0.5"),
        (Stopping(metric="train_loss", value=0.5), [0.1, 0.5], None),  # nobody has replied
        (Stopping(patience=2), [0.5, 0.4, 0.6, 0.6], None),
        (Stopping(patience=2), [0.5, 0.4, 0.6, 0.6, 0.5], "has not gained more than 0 in 2 evaluations"),
        (Stopping(patience=2, delta=0.1), [0.5, 0.55, 0.59], "has not gained more than 0.1 in 2 evaluations"),
        (Stopping(metric="test_loss", patience=1), [0.5, 0.6], None),
        (Stopping(metric="test_loss", patience=1), [0.6, 0.5], "test_loss has not gained"),
        (Stopping(seconds=25), [0.1, 0.1], None),
        (Stopping(seconds=25), [0.1, 0.1, 0.1], "30 s are over stop.seconds = 25"),
        (Stopping(bytes=900), [0.1, 0.1, 0.1], "0.0 MB are over stop.bytes = 900"),
    ],
)
def test_the_rules(rules: Stopping, accuracies: list[float], why: str | None) -> None:
    said = rules.reason(lines(*accuracies))
    assert said is None if why is None else why in str(said)


def test_a_run_ends_with_its_reason_and_a_checkpoint_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    in_process.run(load([*WORDS, "rounds=30", "stop.accuracy=0.3"]), run)
    result = json.loads((run / "result.json").read_text())
    assert "has reached stop.accuracy = 0.3" in result["stopped"]
    assert result["rounds"] < 30
    assert result["final_accuracy"] >= 0.3
    went = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["test_accuracy"] < 0.3 for line in went[:-1])
    in_process.run(load([*WORDS, "rounds=30", "resume=auto"]), run)
    assert json.loads((run / "result.json").read_text())["stopped"] is None
    in_process.run(load([*WORDS, "rounds=30"]), tmp_path / "whole")
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_the_same_command_again_trains_nothing(tmp_path: Path) -> None:
    from fedmuon_app.cli import train

    c = load([*WORDS, "rounds=30", "stop.accuracy=0.3", "resume=auto", f"run_dir={tmp_path}"])
    first = train(c, tmp_path)
    before = (tmp_path / "metrics.jsonl").stat()
    assert train(c, tmp_path) == first
    assert (tmp_path / "metrics.jsonl").stat() == before


@pytest.mark.parametrize(
    ("metric", "value", "measured"),
    [
        ("client_accuracy_worst", 0.2, ["dataset.client_validation=0.2", "evaluation.clients=all"]),
        ("client_accuracy_std", 0.3, ["dataset.client_validation=0.2", "evaluation.clients=all"]),
        ("control_error", 2.0, ["evaluation.diagnostics=32"]),
    ],
)
def test_a_run_may_end_by_whatever_it_measures(metric: str, value: float, measured: list[str], tmp_path: Path) -> None:
    words = [*WORDS, "rounds=40", f"stop.metric={metric}", f"stop.value={value}"]
    with pytest.raises(InputError, match=f"stop.metric = {metric}: must be among test_accuracy, test_loss, train_loss"):
        build(load(words))
    in_process.run(load([*words, *measured]), tmp_path)
    assert f"has reached stop.value = {value:g}" in json.loads((tmp_path / "result.json").read_text())["stopped"]
    *before, last = (json.loads(line)[metric] for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    side = 1 if metric.endswith("worst") else -1
    assert side * last >= side * value
    assert all(side * x < side * value for x in before)
