from pathlib import Path

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.federation.summary import summary


def test_a_run_in_a_few_lines(tmp_path: Path) -> None:
    words = ["rounds=12", "evaluation.every=2", "engine.workers=0", "algorithm.lr=0.02", "partition.beta=10"]
    in_process.run(
        load([*words, "dataset.client_validation=0.1", "evaluation.clients=all", "stop.accuracy=0.9"]), tmp_path
    )
    said = dict(line.split("  ", 1) for line in summary(tmp_path))
    assert [name.strip() for name in said] == [
        "final accuracy", "best accuracy", "to 85%", "to 88%", "worst client", "stopped",
    ]  # fmt: skip
    assert " MB" in next(value for name, value in said.items() if name.startswith("to 85%"))
    assert "has reached stop.accuracy" in list(said.values())[-1]


def test_what_was_not_reached_and_what_was_dropped(tmp_path: Path) -> None:
    in_process.run(load(["rounds=2", "engine.workers=0", "federation.aggregate=multi_krum"]), tmp_path)
    said = "\n".join(summary(tmp_path))
    assert "not reached" in said
    assert "replies dropped" in said
    assert summary(tmp_path / "nothing") == []
