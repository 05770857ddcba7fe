import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedmuon_app.config import load
from fedmuon_app.errors import InputError
from fedmuon_app.report import cli
from fedmuon_app.report.figure import curve
from fedmuon_app.report.runs import experiments, read_runs


def write_run(folder: Path, accuracies: list[float], *overrides: str) -> None:
    from dataclasses import asdict

    config = asdict(load(list(overrides)))
    folder.mkdir(parents=True)
    lines = [{"round": 10 * (i + 1), "test_accuracy": a} for i, a in enumerate(accuracies)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result: dict[str, Any] = {
        "seed": config["seed"], "rounds": 10 * len(lines), "final_accuracy": accuracies[-1],
        "best_accuracy": max(accuracies), "bytes_up": 2_000_000, "bytes_down": 3_000_000, "seconds": 7.0,
        "config": config,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    write_run(tmp_path / "s" / "0", [0.5, 0.8], "algorithm=fedmuon", "seed=0")
    write_run(tmp_path / "s" / "1", [0.7, 0.9], "algorithm=fedmuon", "seed=1", "run_dir=/elsewhere", "device=cpu")
    write_run(tmp_path / "s" / "2", [0.2, 0.3], "algorithm=localmuon")
    write_run(tmp_path / "s" / "3", [0.4, 0.6], "algorithm=fedavg", "algorithm.momentum=heavy_ball")
    write_run(tmp_path / "s" / "4", [0.4, 0.5], "algorithm=fedavg")
    write_run(tmp_path / "s" / "5", [0.6, 0.7], "algorithm=fedmuon", "partition.beta=10")
    (tmp_path / "s" / "6").mkdir()  # a run that did not finish
    (tmp_path / "s" / "6" / "metrics.jsonl").write_text("")
    return tmp_path / "s"


def test_seeds_are_grouped_and_what_differs_is_named(sweep: Path) -> None:
    found = {(e.panel, e.label): len(e.runs) for e in experiments(read_runs([sweep]))}
    b = "digits, dirichlet β = "
    assert found == {
        (b + "0.1", "fedavg (momentum=ema)"): 1,
        (b + "0.1", "fedavg (momentum=heavy_ball)"): 1,
        (b + "0.1", "fedmuon"): 2,
        (b + "0.1", "localmuon"): 1,
        (b + "10", "fedmuon"): 1,
    }


def test_a_run_that_is_named_twice_counts_once(sweep: Path) -> None:
    assert len(read_runs([sweep, sweep / "0"])) == 6


def test_a_curve_is_the_mean_over_seeds_with_its_spread(sweep: Path) -> None:
    (fedmuon,) = [e for e in experiments(read_runs([sweep])) if len(e.runs) == 2]
    rounds, mean, spread = curve(fedmuon)
    assert rounds == [10, 20]
    assert mean == pytest.approx([0.6, 0.85])
    assert spread == pytest.approx([statistics.stdev([0.5, 0.7]), statistics.stdev([0.8, 0.9])])


def test_the_command_writes_tables_and_figures(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedmuon-report", str(sweep)])
    cli.main()
    out = sweep / "report"
    with (out / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    (row,) = [r for r in rows if r["method"] == "fedmuon" and r["data"].endswith("0.1")]
    assert (row["seeds"], row["rounds"], row["final accuracy"], row["± std"]) == ("0 1", "20", "0.8500", "0.0707")
    assert (row["MB up"], row["MB down"]) == ("2.0", "3.0")
    assert (out / "table.md").read_text().count("\n") == 2 + 5
    printed = capsys.readouterr()
    assert "| fedmuon |" in printed.out
    assert printed.err == f"left out, not finished: {sweep / '6'}\n"
    assert Image.open(out / "accuracy.png").width > 1000
    svg = (out / "accuracy.svg").read_text()
    assert svg.startswith("<?xml")
    cli.main()
    assert (out / "accuracy.svg").read_text() == svg  # the same runs give the same file


@pytest.mark.parametrize("missing", [True, False])
def test_a_folder_without_runs_is_said_in_a_sentence(missing: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder" if missing else "no finished run"):
        read_runs([tmp_path / "nowhere" if missing else tmp_path])
