import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedmuon_app.algorithms.server import Server
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.folder import CHECKPOINT
from fedmuon_app.federation.protocol import NEVER, Acknowledged, CallId
from fedmuon_app.federation.runlog import CheckpointOptions, RunLog

CPU = torch.device("cpu")


def a_standing() -> RunState:
    server = Server(torch.randn(7), torch.randn(7), torch.zeros(0))
    return RunState(
        server,
        12,
        "ab12",
        2,
        {0: CallId(1, 9), 3: CallId(2, 12)},
        silent=2,
        said=["away"],
        clients=[0, 3],
        owners={3: "SHA256:x"},
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    standing = a_standing()
    saved = checkpoint.write(tmp_path, standing, {"lines": [1.5]}, "seed: 3")
    assert saved == replace(standing, saved=standing.counted)
    read, log = checkpoint.read(tmp_path)
    assert all(torch.equal(getattr(read.server, name), getattr(standing.server, name)) for name in "XCU")
    assert replace(read, server=standing.server) == saved
    assert log == {"lines": [1.5]}
    assert checkpoint.config_of(tmp_path) == "seed: 3"
    assert checkpoint.rounds_in(tmp_path) == 12


def test_what_a_client_is_told(tmp_path: Path) -> None:
    standing = checkpoint.write(tmp_path, a_standing(), {}, "").after(13, a_standing().server, [0, 1])
    assert standing.cohort([3, 1, 0, 2]) == {
        0: Acknowledged(CallId(2, 13), CallId(1, 9)),
        1: Acknowledged(CallId(2, 13), NEVER),
        2: Acknowledged(NEVER, NEVER),
        3: Acknowledged(CallId(2, 12), CallId(2, 12)),
    }


def test_a_damaged_checkpoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, a_standing(), {}, "")
    file = tmp_path / CHECKPOINT
    whole = file.read_bytes()
    for broken in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), os.urandom(300)):
        file.write_bytes(broken)
        with pytest.raises(InputError, match=r"resume = .*checkpoint\.safetensors is damaged"):
            RunLog(tmp_path, {}, keeping=CheckpointOptions("", 1, resume=True)).begin(a_standing().server, 0, 20)
        assert file.read_bytes() == broken
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)


def test_a_checkpoint_of_another_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    old = json.dumps(
        {"round": 3, "experiment": "ab", "attempt": 1, "counted": {}, "log": {}, "config": "", "sha256": ""}
    )
    save_file({name: torch.zeros(2) for name in "XCU"}, tmp_path / CHECKPOINT, {"about": old})
    with pytest.raises(InputError, match=r"of another version of this app \(form 1, this one reads 5\)"):
        checkpoint.read(tmp_path)


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runlog = RunLog(tmp_path, {}, keeping=CheckpointOptions("", 1))
    standing = runlog.begin(a_standing().server, 0, 20)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    runlog.counts.settle(5)
    with pytest.raises(RunError, match=r"the checkpoint after round 5 cannot be written: .*No space left"):
        runlog.checkpoint(replace(standing, round=5))
    assert checkpoint.rounds_in(tmp_path) == 0


def test_a_folder_that_cannot_be_had_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"run_dir = .*file/run: it cannot be written \(.*Not a directory"):
        RunLog(tmp_path / "file" / "run", {})


def test_a_folder_is_one_processs(tmp_path: Path) -> None:
    runlog = RunLog(tmp_path, {})
    with pytest.raises(InputError, match="another process is writing a run there"):
        RunLog(tmp_path, {}, keeping=CheckpointOptions(resume=True))
    del runlog
    RunLog(tmp_path, {})
