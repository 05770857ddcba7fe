from pathlib import Path

import numpy as np
import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.experiment import build
from fedmuon_app.report.cli import write
from fedmuon_app.report.files import read_runs
from fedmuon_app.report.labels import heat_maps
from fedmuon_app.report.runs import experiments
from fedmuon_app.report.strip import kinds_of, of_clients, served, strip

WORDS = ["rounds=2", "evaluation.every=1", "engine.workers=0", "checkpoint.every=null"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("strip")
    for name in ("fedavg", "fedmuon"):
        judged = ["dataset.client_validation=0.2", "evaluation.clients=all"]
        in_process.run(load([*WORDS, *judged, f"algorithm={name}"]), place / name)
    return place


def test_a_dot_a_client(folder: Path) -> None:
    found = experiments(read_runs([folder]))
    figure = strip(found)
    assert figure is not None
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [sorted(dot.get_ydata()) for dot in dots] == [sorted(of_clients(e.runs[0]).values()) for e in found]
    assert len(dots[0].get_ydata()) == 16


def test_the_mean_the_tenth_percentile_and_the_worst_in_one_figure(folder: Path) -> None:
    found = experiments(read_runs([folder]))
    figure = served(found)
    assert figure is not None
    lines = figure.axes[0].lines
    assert [line.get_linestyle() for line in lines] == ["-", "--", ":"] * 2
    worst = [line["client_accuracy_worst"] for line in found[0].runs[0].lines]
    assert list(lines[2].get_ydata()) == worst
    assert list(lines[0].get_ydata()) >= worst


def test_of_a_loss_the_tenth_that_is_served_worst_lies_above(tmp_path: Path) -> None:
    for k in range(2):
        (tmp_path / f"{k}.txt").write_text("ab" * (200 + 100 * k))
    words = ["dataset=text", f"dataset.path={tmp_path}", "dataset.length=8", "model=gpt", "partition=column",
             "partition.column=file", "federation.num_clients=2", "federation.clients_per_round=2"]  # fmt: skip
    judged = ["dataset.client_validation=0.2", "evaluation.clients=all", "task=language_model", "local.batch_size=4"]
    in_process.run(load([*WORDS, *words, *judged]), tmp_path / "run")
    found = experiments(read_runs([tmp_path / "run"]))
    assert set(kinds_of(found[0]).values()) == {"-", "--", ":"}
    assert "client_loss_p90" in {kind.y for kind in kinds_of(found[0])}
    for figure in (strip(found), served(found)):
        assert figure is not None
        assert figure.axes[0].get_ylabel().startswith("loss")


def test_who_holds_which_classes(folder: Path) -> None:
    job = build(load([*WORDS, "dataset.client_validation=0.2"]))
    head, *rows = (folder / "fedmuon" / "labels.csv").read_text().splitlines()
    assert head == "client,0,1,2,3,4,5,6,7,8,9"
    assert [[int(x) for x in row.split(",")[1:]] for row in rows] == job.labels().tolist()
    figure = heat_maps(experiments(read_runs([folder])))
    assert figure is not None
    (image,) = figure.axes[0].images
    assert np.asarray(image.get_array()).tolist() == job.labels().tolist()


def test_it_is_in_the_report_where_clients_were_asked(folder: Path, tmp_path: Path) -> None:
    files = {path.name for path in write(experiments(read_runs([folder])), tmp_path / "a")}
    assert {"clients.png", "clients.svg", "clients.csv", "client_accuracy_worst.png", "clients_served.png"} <= files
    assert 'id="clients"' in (tmp_path / "a" / "index.html").read_text()
    in_process.run(load([*WORDS, "algorithm=fedavg"]), tmp_path / "run")
    files = {path.name for path in write(experiments(read_runs([tmp_path / "run"])), tmp_path / "b")}
    assert not any("client" in name for name in files)
