from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.federation.callbacks import tracker


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_number_of_an_evaluated_round_is_in_tensorboard(tmp_path: Path) -> None:
    (board,) = tracker("tensorboard", tmp_path)
    board.after_evaluation({"round": 2, "test_accuracy": 0.5, "train_loss": None})
    board.after_evaluation({"round": 4, "test_accuracy": 0.75, "train_loss": 1.0})
    assert scalars(tmp_path) == {"test_accuracy": [(2, 0.5), (4, 0.75)], "train_loss": [(4, 1.0)]}


def test_a_resumed_run_takes_back_what_its_first_life_logged_after_the_checkpoint(tmp_path: Path) -> None:
    for rounds in ((2, 4, 6), (4, 8)):
        (board,) = tracker("tensorboard", tmp_path)
        for r in rounds:
            board.after_evaluation({"round": r, "test_accuracy": r / 10})
    assert [step for step, _ in scalars(tmp_path)["test_accuracy"]] == [2, 4, 8]


def test_a_run_with_it(tmp_path: Path) -> None:
    in_process.run(load(["rounds=2", "evaluation.every=1", "local.steps=1", "tracker=tensorboard"]), tmp_path)
    assert [step for step, _ in scalars(tmp_path)["test_loss"]] == [1, 2]


def test_it_is_asked_for_by_its_name_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="tracker = tensorboard: it is not installed"):
        tracker("tensorboard", tmp_path)
