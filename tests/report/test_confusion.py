import json
from pathlib import Path

import numpy as np
import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.report.cli import write
from fedmuon_app.report.confusion import confusions, counted
from fedmuon_app.report.files import read_runs
from fedmuon_app.report.runs import experiments

WORDS = ["rounds=1", "engine.workers=0", "checkpoint.every=null"]


def test_a_panel_for_each_method_summed_over_its_seeds(tmp_path: Path) -> None:
    runs = [("fedavg", 0), ("fedavg", 1), ("fedmuon", 0)]
    for name, seed in runs:
        words = [*WORDS, f"algorithm={name}", f"seed={seed}", "evaluation.confusion=true"]
        in_process.run(load(words), tmp_path / f"{name}{seed}")
    found = experiments(read_runs([tmp_path]))
    figure = confusions(found)
    assert figure is not None
    images = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    assert len(images) == 2
    by_hand = [json.loads((tmp_path / f"{name}{seed}" / "result.json").read_text())["confusion"] for name, seed in runs]
    fedavg = np.array(by_hand[0]["counts"]) + np.array(by_hand[1]["counts"])
    classes, counts = counted(next(e for e in found if e.method == "fedavg")) or ([], np.zeros(0))
    assert classes == by_hand[0]["classes"]
    assert (counts == fedavg).all()
    assert np.allclose(images[0], fedavg / fedavg.sum(1, keepdims=True))
    write(found, tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "share of each class by what it is taken for" in page
    assert "<script" not in page  # only the page of --watch has one


@pytest.mark.parametrize("count", [5, 8])
def test_of_many_methods_four_stand_in_a_row(count: int, tmp_path: Path) -> None:
    for k in range(count):
        words = [
            *WORDS,
            "dataset.client_validation=0.9",
            f"algorithm.lr={0.001 * (k + 1)}",
            "evaluation.confusion=true",
        ]
        in_process.run(load(words), tmp_path / str(k))
    figure = confusions(experiments(read_runs([tmp_path])))
    assert figure is not None
    assert len([ax for ax in figure.axes if ax.images]) == count
    bare = [ax for ax in figure.axes if not ax.images and not ax.get_ylabel()]  # neither a panel nor the scale
    assert not any(ax.axison for ax in bare)


def test_nothing_is_drawn_where_nobody_counted(tmp_path: Path) -> None:
    in_process.run(load(WORDS), tmp_path / "run")
    assert confusions(experiments(read_runs([tmp_path]))) is None
