import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.experiment import build
from fedmuon_app.federation.judging import Judged, hold_out, judges, spread

HELD = ["dataset.client_validation=0.2", "evaluation.clients=all"]
WORDS = [*HELD, "rounds=4", "evaluation.every=2", "checkpoint.every=2"]


def test_a_share_of_each_client_is_held_out_and_never_trained_on() -> None:
    parts = [np.arange(10, 30), np.arange(100, 101), np.arange(0), np.arange(50, 53)]
    kept, held = hold_out(parts, 0.2, seed=3)
    assert [len(h) for h in held] == [4, 0, 0, 1]
    for part, k, h in zip(parts, kept, held, strict=True):
        assert sorted([*k, *h]) == list(part)
        assert not set(k) & set(h)
    again = hold_out(parts, 0.2, seed=3)
    assert all((a == b).all() for a, b in zip(held, again[1], strict=True))
    assert list(hold_out(parts, 0.2, seed=4)[1][0]) != list(held[0])
    same, none = hold_out(parts, 0.0, seed=3)
    assert all((a == b).all() for a, b in zip(same, parts, strict=True))
    assert not any(map(len, none))


def test_one_example_is_left_to_train_on() -> None:
    kept, held = hold_out([np.arange(2)], 0.9, seed=0)
    assert (len(kept[0]), len(held[0])) == (1, 1)


def test_who_judges_is_the_seeds_choice() -> None:
    assert judges(0, 1, [3, 1, 2], "all") == [1, 2, 3]
    assert judges(0, 1, [3, 1, 2], "none") == []
    assert judges(0, 1, [3, 1], "7") == [1, 3]
    draws = {tuple(judges(0, r, range(10), "3")) for r in range(20)}
    assert len(draws) > 10
    assert all(len(set(draw)) == 3 for draw in draws)


def test_the_spread() -> None:
    found = {i: Judged(a, 1 - a, m) for i, (a, m) in enumerate([(0.5, 10), (1.0, 30), (0.0, 10)])}
    said = spread(found, "test_accuracy")
    assert said["client_accuracy"] == pytest.approx(0.7)
    assert said["client_loss"] == pytest.approx(0.3)
    assert said["client_accuracy_mean"] == pytest.approx(0.5)
    assert said["client_accuracy_std"] == pytest.approx(np.std([0.5, 1, 0]))
    assert (said["client_accuracy_worst"], said["clients_judged"]) == (0.0, 3)
    assert (said["client_accuracy_p10"], said["client_accuracy_p90"]) == pytest.approx((0.1, 0.9))
    assert spread({}, "test_accuracy") == {"clients_judged": 0}


def test_what_a_run_says_of_its_clients_is_what_they_say_of_its_model(tmp_path: Path) -> None:
    c = load([*WORDS, "engine.workers=0"])
    in_process.run(c, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    by_client = [json.loads(line) for line in (tmp_path / "run" / "clients.jsonl").read_text().splitlines()]
    assert [line["round"] for line in by_client] == [2, 4]
    experiment = build(c)
    X = experiment.clients.objective.layout.flat(load_file(tmp_path / "run" / "model.safetensors"))
    expected = {str(i): experiment.clients.judge(i, X) for i in range(16) if len(experiment.clients.held[i])}
    assert {i: Judged(*said) for i, said in by_client[-1]["clients"].items()} == expected
    assert lines[-1]["client_accuracy_worst"] == min(one.value for one in expected.values())
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["train_examples"] == len(experiment.data.train)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_says_the_same(workers: int, tmp_path: Path) -> None:
    words = [*WORDS, f"engine.workers={workers}"]
    in_process.run(load(words), tmp_path / "whole")
    in_process.run(load([*words, "rounds=2"]), tmp_path / "run")
    in_process.run(load([*words, "resume=auto"]), tmp_path / "run")
    for name in ("clients.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_best_model_and_the_confusion_of_the_last(tmp_path: Path) -> None:
    words = ["rounds=8", "evaluation.every=1", "algorithm.lr=0.02", "engine.workers=0"]
    c = load([*words, "checkpoint.best=true", "evaluation.confusion=true"])
    in_process.run(c, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    experiment = build(c)
    layout, test = experiment.clients.objective.layout, experiment.data.test
    best, last = (layout.flat(load_file(tmp_path / "run" / f"model{kind}.safetensors")) for kind in (".best", ""))
    assert experiment.evaluate(best)["accuracy"] == max(line["test_accuracy"] for line in lines)
    confusion = json.loads((tmp_path / "run" / "result.json").read_text())["confusion"]
    counts = np.array(confusion["counts"])
    assert counts.sum(1).tolist() == np.bincount(test.targets.numpy(), minlength=10).tolist()
    assert counts.trace() / counts.sum() == pytest.approx(experiment.evaluate(last)["accuracy"])
    in_process.run(load(words), tmp_path / "plain")
    assert not (tmp_path / "plain" / "model.best.safetensors").exists()
    assert "confusion" not in json.loads((tmp_path / "plain" / "result.json").read_text())
