import csv
import json
import math
import statistics
import sys
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from PIL import Image

from fedmuon_app.config import load
from fedmuon_app.errors import InputError
from fedmuon_app.report import cli
from fedmuon_app.report.budgets import budgets
from fedmuon_app.report.figure import ACCURACY, curve, draw, drawable, shown
from fedmuon_app.report.files import archive, read_runs
from fedmuon_app.report.runs import experiments
from fedmuon_app.report.table import Table, accuracy, markdown, paper_steps, reached, step_sizes, tables


def write_run(folder: Path, accuracies: list[float], *overrides: str, **more: float) -> None:
    config = asdict(load(list(overrides)))
    folder.mkdir(parents=True)
    lines = [
        {"round": 10 * i, "test_accuracy": a, "bytes_up": 1_000_000 * i, "bytes_down": 2_000_000 * i, **more}
        for i, a in enumerate(accuracies, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result: dict[str, Any] = {
        "seed": config["seed"], "rounds": 10 * len(lines), "final_accuracy": accuracies[-1],
        "best_accuracy": max(accuracies), "bytes_up": 2_000_000, "bytes_down": 3_000_000, "seconds": 7.0,
        "train_examples": 1600, "versions": {"commit": "abc"}, "config": config,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))


def write_failed_run(folder: Path, accuracies: list[float], *overrides: str) -> None:
    write_run(folder, accuracies, *overrides, test_loss=math.nan)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").unlink()
    said = {"failed": "the step size is too large", "config": result["config"], "versions": result["versions"]}
    (folder / "failed.json").write_text(json.dumps(said))


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


def cells(table: Table, method: str, **more: str) -> dict[str, str]:
    """The one row of a method."""
    rows = [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]
    (row,) = [row for row in rows if row["method"] == method and more.items() <= row.items()]
    return row


def test_seeds_are_grouped_and_what_differs_is_named(sweep: Path) -> None:
    found = {(e.panel, e.label): len(e.runs) for e in experiments(read_runs([sweep]))}
    b = "Digits, Dirichlet β = "
    assert found == {
        (b + "0.1", "FedAvg, momentum=ema"): 1,
        (b + "0.1", "FedAvg, momentum=heavy_ball"): 1,
        (b + "0.1", "FedMuon"): 2,
        (b + "0.1", "LocalMuon"): 1,
        (b + "10", "FedMuon"): 1,
    }


def test_another_problem_is_another_panel_and_another_schedule_another_line(tmp_path: Path) -> None:
    for i, words in enumerate([[], ["model.padding=0"], ["dataset.validation=0.1"], ["local.steps=9"], ["rounds=20"]]):
        write_run(tmp_path / str(i), [0.5], *words)
    found = [(e.panel, e.settings) for e in experiments(read_runs([tmp_path]))]
    assert found == [
        ("Digits, Dirichlet β = 0.1 (padding=0)", ""),
        ("Digits, Dirichlet β = 0.1 (padding=2)", "local.steps=5, rounds=150"),
        ("Digits, Dirichlet β = 0.1 (padding=2)", "local.steps=5, rounds=20"),
        ("Digits, Dirichlet β = 0.1 (padding=2)", "local.steps=9, rounds=150"),
        ("Digits, validated on 10%, Dirichlet β = 0.1", ""),
    ]


def test_a_run_that_is_named_twice_or_repeated_counts_once(sweep: Path) -> None:
    assert len(read_runs([sweep, sweep / "0"])) == 6
    write_run(sweep / "again", [0.1, 0.1], "algorithm=fedmuon", "seed=0", "engine.workers=2")
    (fedmuon,) = [e for e in experiments(read_runs([sweep])) if len(e.runs) > 1]
    assert [run.folder.name for run in fedmuon.runs] == ["0", "1"]


def test_a_curve_is_the_mean_over_seeds_with_its_spread(sweep: Path) -> None:
    (fedmuon,) = [e for e in experiments(read_runs([sweep])) if len(e.runs) == 2]
    by_round, by_epoch, by_bytes = (curve(fedmuon, kind) for kind in ACCURACY)
    assert by_round[0].tolist() == [10, 20]
    assert by_round[1] == pytest.approx([0.6, 0.85])
    assert by_round[2] == pytest.approx([statistics.stdev([0.5, 0.7]), statistics.stdev([0.8, 0.9])])
    assert by_epoch[0] == pytest.approx([25.0, 50.0])  # 1600 examples of 16 clients: 2 steps of 64; 5 steps a round
    assert by_bytes[0] == pytest.approx([3.0, 6.0])


def test_a_figure_shows_where_curves_can_be_told_apart_and_names_what_lies_below(tmp_path: Path) -> None:
    for i, method in enumerate(("fedavg", "scaffold", "localmuon", "fedmuon")):
        write_run(tmp_path / str(i), [0.2, *(0.8 + 0.01 * i + 0.001 * r for r in range(20))], f"algorithm={method}")
    write_run(tmp_path / "4", [0.1] * 21, "algorithm=fedavg_adam")
    (axes,) = draw(experiments(read_runs([tmp_path])), ACCURACY[0]).axes
    bottom, top = axes.get_ylim()
    assert 0.6 < bottom < 0.8
    assert 0.849 < top < 0.88
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["FedAvg", "FedAvg (Adam) (below, 0.10)", "SCAFFOLD", "LocalMuon", "FedMuon"]


def test_the_final_accuracy_is_the_mean_of_the_last_five_evaluations(tmp_path: Path) -> None:
    write_run(tmp_path / "0", [0.0, 0.1, 0.2, 0.3, 0.4, 1.0], "seed=0")
    write_run(tmp_path / "1", [0.5] * 6, "seed=1")
    row = cells(accuracy(experiments(read_runs([tmp_path]))), "FedMuon")
    assert row["final accuracy"] == "0.4500"
    assert row["± std"] == f"{statistics.stdev([0.4, 0.5]):.4f}"
    assert (row["last"], row["best"], row["seeds"], row["rounds"]) == ("0.7500", "0.7500", "0 1", "60")


def test_rounds_and_bytes_to_an_accuracy(sweep: Path) -> None:
    table = reached(experiments(read_runs([sweep])))
    assert list(table.columns[3:]) == [f"{x}%: {what}" for x in (80, 85, 88, 90) for what in ("rounds", "MB")]
    row = cells(table, "FedMuon", data="Digits, Dirichlet β = 0.1")
    assert (row["80%: rounds"], row["80%: MB"]) == ("20", "6")
    assert (row["85%: rounds"], row["90%: MB"]) == ("20 (1 of 2)", "6 (1 of 2)")
    assert cells(table, "LocalMuon")["80%: rounds"] == "–"


def test_the_best_of_a_grid_stands_beside_the_papers(tmp_path: Path) -> None:
    grid = {(0.001, 0.01): 0.6, (0.002, 0.01): 0.7, (0.004, 0.01): 0.65, (0.001, 0.04): 0.5, (0.002, 0.04): 0.8}
    for i, ((lr, vector_lr), final) in enumerate(grid.items()):
        sizes = [f"algorithm.lr={lr}", f"algorithm.vector_lr={vector_lr}"]
        write_run(tmp_path / str(i), [final], "dataset=fashion_mnist", *sizes)
    write_run(tmp_path / "5", [0.3], "dataset=fashion_mnist", "algorithm=fedavg")  # no grid
    found = experiments(read_runs([tmp_path]))
    row = cells(step_sizes(found), "FedMuon")
    assert (row["tried"], row["best"], row["accuracy"]) == ("5", "lr=0.002, vector_lr=0.04", "0.8000")
    assert (row["on the edge"], row["the paper's"], row["its accuracy"]) == (
        "largest vector_lr", "lr=0.001, vector_lr=0.01", "0.6000",
    )  # fmt: skip
    assert len(step_sizes(found).rows) == 1
    drawn = {line.label for line in shown(found)}  # five lines of a method would be too many
    assert drawn == {"FedMuon, lr=0.002, vector_lr=0.04, best of 5", "FedAvg"}
    alone = shown([e for e in found if e.method == "fedmuon"])
    assert len({line.colour for line in alone}) == 5


def test_a_run_that_failed_was_tried(tmp_path: Path) -> None:
    """Of the steps 0.1, 0.3, 1, 3 the last fails, and so does one seed of the last but one: the best is 0.3."""
    for i, (lr, final) in enumerate(((0.1, 0.5), (0.3, 0.6), (1, 0.7))):
        write_run(tmp_path / f"{i}", [final], "algorithm=fedavg", f"algorithm.lr={lr}")
    write_failed_run(tmp_path / "3", [0.9], "algorithm=fedavg", "algorithm.lr=1", "seed=1")
    write_failed_run(tmp_path / "4", [0.9, 0.1], "algorithm=fedavg", "algorithm.lr=3")
    write_failed_run(tmp_path / "5", [0.1], "algorithm=fedavg", "algorithm.lr=0.1")  # repeated later: 0
    write_failed_run(tmp_path / "6", [0.1], "algorithm=fedavg", "algorithm.lr=3", "seed=1")
    (tmp_path / "6" / "metrics.jsonl").unlink()  # it failed before it began
    archive(read_runs([tmp_path]), tmp_path / "archive")
    for place in (tmp_path, tmp_path / "archive"):
        found = experiments(read_runs([place]))
        row = cells(step_sizes(found), "FedAvg")
        assert [row[key] for key in ("tried", "failed", "best", "accuracy", "on the edge")] == [
            "4", "2", "lr=0.3", "0.6000", "",
        ]  # fmt: skip
        table = accuracy(found)
        assert [cells(table, "FedAvg", settings=f"lr={lr}")["failed"] for lr in (0.1, 1.0, 3.0)] == [
            "",
            "1 of 2",
            "2 of 2",
        ]
        assert cells(table, "FedAvg", settings="lr=3.0")["final accuracy"] == ""
        assert len(reached(found).rows) == 0
    cli.write(found, tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text()
    assert text.count("<summary>failed</summary>the step size is too large") == 3


def test_failed_runs_alone_make_no_report(tmp_path: Path) -> None:
    write_failed_run(tmp_path / "0", [0.1])
    with pytest.raises(InputError, match="no finished run"):
        read_runs([tmp_path])


def test_the_papers_step_sizes_are_those_of_its_experiments_in_conf() -> None:
    assert paper_steps("fashion_mnist", "localmuon", 0.1) == (0.001, 0.1)
    assert paper_steps("cifar10", "fedavg_adam", 10.0) == (0.001, None)
    assert paper_steps("digits", "fedmuon", 0.1) is None
    assert paper_steps("fashion_mnist", "fedmuon", 0.3) is None
    assert paper_steps("fashion_mnist", "muloco", 0.1) is None


def test_diagnostics_are_drawn_and_tabled_where_they_were_measured(tmp_path: Path) -> None:
    write_run(tmp_path / "0", [0.5, 0.6], lmo_bias=3.5, control_error=0.25)
    found = experiments(read_runs([tmp_path]))
    assert [table.name for table in tables(found)] == ["accuracy", "diagnostics"]
    text = markdown(tables(found)[1])
    assert "‖C - ∇f(X)‖ |" in text
    assert "| 3.5 | 0.25 |" in text
    assert "trace" not in text
    cli.write(found, tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").glob("*.png")} == {
        "accuracy.png", "accuracy_by_epoch.png", "accuracy_by_bytes.png", "lmo_bias.png", "control_error.png",
    }  # fmt: skip


def test_a_figure_leaves_out_a_panel_that_has_no_numbers_for_it(tmp_path: Path) -> None:
    write_run(tmp_path / "0", [0.5, 0.6])
    write_run(tmp_path / "1", [0.5, 0.6], "partition.beta=10")
    old = json.loads((tmp_path / "1" / "result.json").read_text())
    del old["train_examples"]  # as runs of an older version have none: no epochs
    (tmp_path / "1" / "result.json").write_text(json.dumps(old))
    cli.write(experiments(read_runs([tmp_path])), tmp_path / "out")
    both, one = (Image.open(tmp_path / "out" / f"accuracy{by}.png").width for by in ("", "_by_epoch"))
    assert both == 2 * one


def test_an_archive_gives_the_same_report(sweep: Path, tmp_path: Path) -> None:
    runs = read_runs([sweep])
    archive(runs, tmp_path / "archive")
    again = read_runs([tmp_path / "archive"])
    assert [run.folder.name for run in again] == [run.folder.name for run in runs]
    for before, after in zip(runs, again, strict=True):
        assert after.result == {**before.result, "config": {**before.result["config"], "run_dir": None}}
    assert [run.lines for run in again] == [run.lines for run in runs]
    stored = json.loads((tmp_path / "archive" / "runs.json").read_text())
    assert stored["shared"]["config"]["local"]["steps"] == 5
    assert "elsewhere" not in json.dumps(stored)
    assert stored["runs"]["5"]["config"]["partition"] == {"args": {"alpha": 10.0}, "beta": 10.0}
    cli.write(experiments(again), tmp_path / "out")
    page = Seen((tmp_path / "out" / "index.html").read_text())
    assert {link for link in page.links if not link.startswith("#")} == {"../archive"}


class Seen(HTMLParser):
    """What a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(str(value))
            if key in ("href", "src", "xlink:href"):
                self.links.append(str(value))


def test_the_page_stands_alone_and_every_row_leads_to_its_run_folders(sweep: Path) -> None:
    write_run(sweep / "<b>7", [0.1], "algorithm=muloco")
    cli.write(experiments(read_runs([sweep])), sweep / "report")
    text = (sweep / "report" / "index.html").read_text()
    page = Seen(text)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    within = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert set(within) <= set(page.ids)
    folders = [link for link in page.links if not link.startswith("#")]
    assert not any(urlparse(link).scheme for link in folders)
    assert {(sweep / "report" / link).resolve() for link in folders} == {sweep / name for name in (*"012345", "<b>7")}
    assert "<b>7" not in text
    assert page.tags.count("th") > 40
    assert "url(#accuracy-" in text
    assert "currentColor" in text


def test_the_command_writes_tables_figures_and_the_page(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedmuon-report", str(sweep), "--archive", str(sweep.parent / "archive")])
    cli.main()
    out = sweep / "report"
    with (out / "accuracy.csv").open() as file:
        rows = list(csv.DictReader(file))
    (row,) = [r for r in rows if r["method"] == "FedMuon" and r["data"].endswith("0.1")]
    assert (row["seeds"], row["rounds"], row["final accuracy"], row["± std"]) == ("0 1", "20", "0.7250", "0.1061")
    assert (row["MB up"], row["MB down"]) == ("2.0", "3.0")
    assert row["runs"].split() == [str(sweep / "0"), str(sweep / "1")]
    printed = capsys.readouterr()
    assert "| FedMuon |" in printed.out
    assert (out / "tables.md").read_text() in printed.out
    assert printed.err == f"left out, not finished: {sweep / '6'}\n"
    assert Image.open(out / "accuracy.png").width > 1000
    svg = (out / "accuracy.svg").read_text()
    assert svg.startswith("<?xml")
    files = sorted(file.name for file in out.iterdir())
    assert files == sorted(
        [f"accuracy{by}.{kind}" for by in ("", "_by_epoch", "_by_bytes") for kind in ("png", "svg")]
        + ["index.html", "tables.md", "accuracy.csv", "reached.csv"]
    )
    assert [file.name for file in sorted((sweep.parent / "archive").iterdir())] == ["curves.csv", "runs.json"]
    cli.main()
    assert (out / "accuracy.svg").read_text() == svg  # the same runs give the same file


def test_a_run_of_a_method_that_this_version_does_not_know_is_shown_with_the_others(sweep: Path) -> None:
    write_run(sweep / "7", [0.5, 0.6])
    result = json.loads((sweep / "7" / "result.json").read_text())
    result["config"]["algorithm"]["name"] = "soap"
    (sweep / "7" / "result.json").write_text(json.dumps(result))
    found = experiments(read_runs([sweep]))
    assert cells(accuracy(found), "soap")["final accuracy"] == "0.5500"
    cli.write(found, sweep / "report")
    assert ">soap<" in (sweep / "report" / "accuracy.svg").read_text()


def test_a_run_from_before_a_key_existed_is_the_same_experiment_as_one_with_its_default(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / str(seed), [0.5], f"seed={seed}")
    file = tmp_path / "1" / "result.json"
    result = json.loads(file.read_text())
    for key in ("schedule", "warmup", "final", "weight_decay", "clip", "prox"):
        del result["config"]["algorithm"][key]
    file.write_text(json.dumps(result))
    (only,) = experiments(read_runs([tmp_path]))
    assert len(only.runs) == 2


def test_held_out_images_are_no_test_set(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5, 0.6], "dataset.validation=0.1")
    write_run(tmp_path / "b", [0.5, 0.6])
    cli.write(experiments(read_runs([tmp_path])), tmp_path / "report")
    svg = (tmp_path / "report" / "accuracy.svg").read_text()
    assert (svg.count(">validation accuracy<"), svg.count(">test accuracy<")) == (1, 1)


def test_many_lines_have_their_names_below_the_panel(tmp_path: Path) -> None:
    for i in range(4):
        for method in ("fedmuon", "localmuon", "fedavg"):
            write_run(tmp_path / f"{method}{i}", [0.5, 0.6 + i / 100], f"algorithm={method}", f"algorithm.lr=0.{i + 1}")
    found = experiments(read_runs([tmp_path]))
    kind, some = next(iter(drawable(found).items()))
    figure = draw(some, kind)
    figure.canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 12
    assert legend.get_window_extent().y1 < axes.get_window_extent().y0
    marks = {line.get_marker() for line in axes.get_lines()}
    assert len(marks) == 3


def test_a_figure_can_be_redrawn_for_a_paper(sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # noqa: ANN001
    def report(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["fedmuon-report", str(sweep), *words])
        cli.main()

    report("--methods", "fedmuon,localmuon", "--metric", "accuracy", "--ylim", "0.2,0.9", "--format", "pdf")
    assert (sweep / "report" / "accuracy.pdf").read_bytes().startswith(b"%PDF")
    svg = (sweep / "report" / "accuracy.svg").read_text()
    assert ">FedMuon<" in svg
    assert ">FedAvg" not in svg
    assert not (sweep / "report" / "accuracy_by_bytes.svg").exists()
    for words, said in (
        (["--methods", "soap"], "--methods soap: the runs are of fedavg, fedmuon, localmuon"),
        (["--metric", "loss"], "--metric loss: must be among accuracy, accuracy_by_epoch"),
        (["--out", "/proc/nothing"], "/proc/nothing cannot be written"),
    ):
        with pytest.raises(SystemExit) as stop:
            report(*words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err


def test_the_training_loss_is_drawn(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5, 0.6], train_loss=1.5)
    assert "train_loss" in [kind.name for kind in drawable(experiments(read_runs([tmp_path])))]


@pytest.mark.parametrize("missing", [True, False])
def test_a_folder_without_runs_is_said_in_a_sentence(missing: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder" if missing else "no finished run"):
        read_runs([tmp_path / "nowhere" if missing else tmp_path])


def test_what_is_reached_in_budgets_of_rounds_and_of_bytes(tmp_path: Path) -> None:
    for count in (1, 3):
        for method, last in (("fedmuon", 0.9), ("fedavg", 0.8)):
            words = [f"algorithm={method}", f"rounds={10 * count}", "algorithm.schedule=cosine"]
            write_run(tmp_path / "s" / f"{method}{count}", [0.1] * (count - 1) + [last + count / 100], *words)
    figure = budgets(experiments(read_runs([tmp_path])))
    assert figure is not None
    over_rounds, over_bytes = ({line.get_label(): line for line in ax.lines} for ax in figure.axes)
    assert list(over_rounds["FedMuon"].get_xdata()) == [10, 30]
    assert list(over_rounds["FedMuon"].get_ydata()) == pytest.approx([0.91, 0.93])
    assert list(over_bytes["FedAvg"].get_xdata()) == [5, 5]  # what result.json says, in MB
    write_run(tmp_path / "t" / "0", [0.5], "algorithm.schedule=cosine")
    assert budgets(experiments(read_runs([tmp_path / "t"]))) is None
