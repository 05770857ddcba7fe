"""A run that was interrupted and resumed is the run that was not."""

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import Config, load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.progress import Progress
from fedmuon_app.errors import InputError
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.counts import Counts
from fedmuon_app.federation.folder import COHORTS, METRICS
from fedmuon_app.federation.runlog import RunLog

SMALL = ["rounds=13", "evaluation.every=4", "checkpoint.every=5", "local.steps=1", "local.batch_size=8",
         "federation.num_clients=6", "federation.clients_per_round=3"]  # fmt: skip


def killed_after(r: int, config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it in a process that ends at once, without another word, after round r."""

    def watch(self: Progress, round_: int, server: object) -> None:
        if round_ == r:
            os._exit(9)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "after_round", watch)
        process = multiprocessing.get_context("fork").Process(target=in_process.run, args=(config, folder))
        process.start()
        process.join()
        assert process.exitcode == 9


def same_run(folder: Path, other: Path) -> None:
    (a, log), (b, other_log) = (checkpoint.read(f) for f in (folder, other))
    assert all(torch.equal(getattr(a.server, name), getattr(b.server, name)) for name in "XCU")
    assert [call_id.round for call_id in a.counted.values()] == [call_id.round for call_id in b.counted.values()]
    for one in (log, other_log):
        del one["seconds"]
    assert log == other_log
    for name in (METRICS, COHORTS):
        lines, expected = ([json.loads(line) for line in (f / name).read_text().splitlines()] for f in (folder, other))
        assert [{**line, "seconds": 0} for line in lines] == [{**line, "seconds": 0} for line in expected]
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("how", ["engine.workers=0", "engine.workers=2", "engine.states=device"])
@pytest.mark.parametrize("algorithm", METHODS)
def test_killed_twice_and_resumed_it_ends_with_the_same_bits(
    algorithm: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, f"algorithm={algorithm}", how]
    start = ["algorithm.start=gradient"] if METHODS[algorithm].control != "none" else []
    in_process.run(load([*words, *start]), tmp_path / "whole")
    killed_after(3, load([*words, *start]), tmp_path / "run", monkeypatch)  # before the first checkpoint but 0's
    killed_after(9, load([*words, *start, "resume=auto"]), tmp_path / "run", monkeypatch)
    in_process.run(load([*words, *start, "resume=auto"]), tmp_path / "run")
    same_run(tmp_path / "run", tmp_path / "whole")
    assert checkpoint.read(tmp_path / "run")[0].attempt == 3


REGULARISED = ["algorithm.schedule=cosine", "algorithm.warmup=3", "algorithm.weight_decay=0.1", "algorithm.clip=1",
               "algorithm.prox=0.1"]  # fmt: skip


def test_a_schedule_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process.run(load([*SMALL, *REGULARISED, "engine.workers=2"]), tmp_path / "whole")
    killed_after(7, load([*SMALL, *REGULARISED]), tmp_path / "run", monkeypatch)
    in_process.run(load([*SMALL, *REGULARISED, "resume=auto"]), tmp_path / "run")
    same_run(tmp_path / "run", tmp_path / "whole")
    in_process.run(load([*SMALL, "engine.workers=2"]), tmp_path / "constant")
    assert (tmp_path / "constant" / "model.safetensors").read_bytes() != (
        tmp_path / "run" / "model.safetensors"
    ).read_bytes()


@pytest.mark.long
def test_killed_after_round_37_of_60_it_ends_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["rounds=60", "checkpoint.every=10", "evaluation.every=10"]
    in_process.run(load(words), tmp_path / "whole")
    killed_after(37, load(words), tmp_path / "run", monkeypatch)
    in_process.run(load([*words, "resume=auto"]), tmp_path / "run")
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("owner", "where"), [(Counts, "train"), (Counts, "settle"), (RunLog, "seconds"), (RunLog, "round")]
)
def test_what_stops_a_run_at_whatever_moment_leaves_a_checkpoint_of_its_last_whole_round(
    owner: type, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in round 8, which is evaluated: before or after it is counted, noted and written."""
    original, logs = getattr(owner, where), []
    begin = RunLog.begin

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if logs and logs[0]._rounds == (7 if where == "train" else 8):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return result

    def begun(self: RunLog, *args: Any, **kwargs: Any) -> Any:
        logs.append(self)
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(RunLog, "begin", begun)
    monkeypatch.setattr(owner, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_process.run(load(SMALL), tmp_path / "run")
    assert checkpoint.rounds_in(tmp_path / "run") == 7
    in_process.run(load([*SMALL, "resume=auto"]), tmp_path / "run")
    in_process.run(load(SMALL), tmp_path / "whole")
    same_run(tmp_path / "run", tmp_path / "whole")


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    in_process.run(load([*SMALL, "rounds=8"]), tmp_path / "run")
    in_process.run(load([*SMALL, "rounds=13", "resume=auto"]), tmp_path / "run")
    in_process.run(load(SMALL), tmp_path / "whole")
    same_run(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(InputError, match=r"rounds = 9: the run in .* has trained 13 already"):
        in_process.run(load([*SMALL, "rounds=9", "resume=auto"]), tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()


def test_a_run_without_checkpoints_is_not_resumed_over(tmp_path: Path) -> None:
    in_process.run(load([*SMALL, "checkpoint.every=null"]), tmp_path)
    before = (tmp_path / METRICS).read_text()
    with pytest.raises(InputError, match="is complete, and has no checkpoint"):
        in_process.run(load([*SMALL, "rounds=20", "resume=auto"]), tmp_path)
    assert (tmp_path / METRICS).read_text() == before
