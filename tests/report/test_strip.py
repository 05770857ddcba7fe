from pathlib import Path

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.report.cli import write
from fedmuon_app.report.files import read_runs
from fedmuon_app.report.runs import experiments
from fedmuon_app.report.strip import of_clients, strip

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


def test_it_is_in_the_report_where_clients_were_asked(folder: Path, tmp_path: Path) -> None:
    files = {path.name for path in write(experiments(read_runs([folder])), tmp_path / "a")}
    assert {"clients.png", "clients.svg", "clients.csv", "client_accuracy_worst.png"} <= files
    assert 'id="clients"' in (tmp_path / "a" / "index.html").read_text()
    in_process.run(load([*WORDS, "algorithm=fedavg"]), tmp_path / "run")
    files = {path.name for path in write(experiments(read_runs([tmp_path / "run"])), tmp_path / "b")}
    assert not any("client" in name for name in files)
