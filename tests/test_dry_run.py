import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmuon_app.config import load
from fedmuon_app.dry_run import MOST_CLASSES, MOST_CLIENTS, bars, newton_schulz_flops, show, warnings, wire
from fedmuon_app.engines import in_process, simulation
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.federation.loop import nonempty_clients

WORDS = ["engine.workers=0", "rounds=12", "evaluation.every=4"]


def test_it_says_what_the_run_then_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "dataset.client_validation=0.1", "evaluation.clients=3"]
    show(load(words), tmp_path / "dry")
    said = json.loads((tmp_path / "dry" / "dry_run.json").read_text())
    in_process.run(load(words), tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert said["bytes"]["in_all"] == result["bytes_up"] + result["bytes_down"]
    assert said["parameters"]["d"] == 61706
    assert set(said["parameters"]["rules"].values()) == {"muon", "sgd"}
    assert sum(map(sum, said["clients"]["labels"].values())) == len(build(load(words)).clients.examples) - sum(
        map(len, build(load(words)).clients.held)
    )
    assert Image.open(tmp_path / "dry" / "labels.png").size[0] > 300
    assert not (tmp_path / "dry" / "metrics.jsonl").exists()
    printed = capsys.readouterr().out
    assert "61,706" in printed
    assert "fc1.weight 120×400" in printed
    assert "█" in printed
    assert said["memory"]["this_process"] > 10 * said["memory"]["inputs"]


JUDGED = ["dataset.client_validation=0.2", "evaluation.clients=all", "evaluation.diagnostics=64"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["engine.workers=0", "rounds=60"],
        ["engine.workers=2", "rounds=40", *JUDGED],
        pytest.param(["engine=simulation", "rounds=40", *JUDGED], marks=pytest.mark.long),
    ],
    ids=["alone", "two workers", "Ray"],
)
def test_the_seconds_are_those_of_the_run(words: list[str], tmp_path: Path) -> None:
    """Within a quarter, in one of eight tries: other processes of the machine may take their share of either."""
    ratios = []
    for i in range(8):
        dry, run = tmp_path / f"dry{i}", tmp_path / f"run{i}"
        c = load([*words, "evaluation.every=20", f"run_dir={run}"])
        show(c, dry)
        said = json.loads((dry / "dry_run.json").read_text())["time"]["in_all"]
        simulation.run(c, run) if c.engine.name == "simulation" else in_process.run(c, run)
        ratios.append(said / json.loads((run / "result.json").read_text())["seconds"])
        if abs(ratios[-1] - 1) < 0.25:
            return
    pytest.fail(f"estimated over true: {ratios}")


def test_of_other_machines_no_seconds_are_said(tmp_path: Path) -> None:
    show(load([*WORDS[1:], "engine=deployment"]), tmp_path)
    said = json.loads((tmp_path / "dry_run.json").read_text())["time"]
    assert said["local_round"] > 0
    assert said["a_round"] is None
    assert said["in_all"] is None


def test_a_cluster_that_is_not_used_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    for engine, known in ("in_process", True), ("simulation", False):
        show(load(["rounds=12", f"engine={engine}"]), tmp_path / engine)
        said = json.loads((tmp_path / engine / "dry_run.json").read_text())["time"]
        assert (said["in_all"] is not None) == known


def test_each_client_is_a_line_of_bars() -> None:
    assert bars({"labels": {"0": [0, 8, 1], "12": [4, 0, 0]}}) == "   0       9  █▁\n  12       4 ▄  "
    many = bars({"labels": {str(i): [1] * 100 for i in range(100)}}).splitlines()
    assert len(many) == MOST_CLIENTS + 1
    assert many[0] == "   0     100 " + "█" * MOST_CLASSES + "…"
    assert many[-1] == "…"


def test_the_operations_of_newton_schulz_are_those_of_its_products() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    G = torch.randn(6, 10)
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            A = G @ G.mT
            G = A @ A @ G + G
    assert newton_schulz_flops(6, 10, 3) == newton_schulz_flops(10, 6, 3) == counter.get_total_flops()


def said_of(*words: str) -> list[str]:
    c = load([*WORDS, *words])
    experiment = build(c)
    return warnings(
        c, experiment, nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round), experiment.labels()
    )


def test_what_should_be_looked_at() -> None:
    assert said_of() == []
    assert any("fewer examples than local.batch_size = 500" in said for said in said_of("local.batch_size=500"))
    assert any("algorithm.lr = 5 lies outside" in said for said in said_of("algorithm.lr=5"))
    assert any("schedule = constant" in said for said in said_of("rounds=500"))
    c = load(WORDS)
    experiment = build(c)
    assert warnings(c, experiment, [0], np.ones((1, 10), int)) == []
    assert "no client has any example of class 3" in warnings(
        c, experiment, [0], np.ones((1, 10), int) * (np.arange(10) != 3)
    )


def test_a_gradient_start_is_in_the_bytes() -> None:
    plain, start = (load([*WORDS, f"algorithm.start={how}"]) for how in ("zeros", "gradient"))
    more = wire(start, build(start))["in_all"] - wire(plain, build(plain))["in_all"]
    assert more == 16 * 2 * wire(plain, build(plain))["a_call"]


def test_of_data_that_is_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    words = ["engine=deployment", "partition=own", "dataset=image_folder", "dataset.classes=[a,b]"]
    with pytest.raises(InputError, match="dry_run = true: with partition = own the data is at the nodes"):
        show(load(words), tmp_path)
