import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.server import Server, initial_server
from fedmuon_app.errors import InputError
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.loop import NoGoodReplyError, Plan, nonempty_clients, run_rounds
from fedmuon_app.federation.protocol import CallId, Cohort, Failure, Replies
from fedmuon_app.federation.runlog import CheckpointOptions, RunLog
from fedmuon_app.federation.sampling import cohort

X0 = torch.zeros(6)
ONES = torch.ones(6)


def plan(rounds: int = 4, every: int = 2, gradient_start: bool = False) -> Plan:
    return Plan(0, 2, rounds, every, 1.0, 0.0, gradient_start)


def good(X: Tensor) -> Update:
    return Update(X + ONES, ONES, 0.5)


def start() -> Server:
    return initial_server(METHODS["fedmuon"], X0)


def evaluate(X: Tensor) -> dict[str, float]:
    return {"accuracy": float(X[0]), "loss": 1.0}


class Engine:
    """Answers with ``bad`` for client 1 in the rounds given, else with a good update."""

    def __init__(self, bad: Update | Failure, rounds: Sequence[int], clients: Sequence[int] = (1,)) -> None:
        self.bad, self.rounds, self.clients = bad, rounds, clients

    def __call__(self, call_id: CallId, sampled: Cohort, X: Tensor, C: Tensor) -> Replies:
        return {
            i: self.bad if call_id.round in self.rounds and i in self.clients else good(X)
            for i in reversed(list(sampled))
        }


def test_a_cohort_is_S_different_clients_and_depends_on_seed_and_round() -> None:
    clients = [3, 5, 8, 13, 21]
    draws = {(seed, r): cohort(seed, r, clients, 3) for seed in range(2) for r in range(1, 200)}
    assert all(len(set(c)) == 3 and set(c) <= set(clients) and c == sorted(c) for c in draws.values())
    assert cohort(0, 7, clients[::-1], 3) == draws[0, 7]
    counts = [sum(i in c for c in draws.values()) for i in clients]
    assert min(counts) > 200  # 239 expected
    assert [draws[0, r] for r in range(1, 9)] != [draws[1, r] for r in range(1, 9)]


def test_rounds_and_their_log(tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []

    class Seen(Callback):
        def after_evaluation(self, line: Mapping[str, Any]) -> None:
            seen.append((line["round"], True))

        def after_round(self, r: int, server: Server) -> None:
            seen.append((r, False))

    runlog = RunLog(tmp_path, {"algorithm": "fedmuon"}, [Seen()])
    server = run_rounds(plan(rounds=5), [0, 1], start(), Engine(good(X0), ()), evaluate, runlog)
    runlog.finish({"w": server.X})
    torch.testing.assert_close(server.X, torch.full((6,), 5.0))
    torch.testing.assert_close(server.C, torch.full((6,), 5.0))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [2, 4, 5]
    evaluated = [(r, True) for r in (2, 4, 5)]
    assert sorted(seen) == sorted([*evaluated, *((r, False) for r in range(1, 6))])
    assert seen.index((2, True)) < seen.index((2, False))
    assert lines[0].keys() == {
        "round", "test_accuracy", "test_loss", "train_loss", "seconds", "bytes_up", "bytes_down",
    }  # fmt: skip
    assert lines[-1]["bytes_up"] == lines[-1]["bytes_down"] == 5 * 2 * 2 * 6 * 4  # rounds, clients, X and C, floats
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["rounds"], result["final_accuracy"], result["best_accuracy"]) == (5, 5.0, 5.0)
    assert result["versions"]["torch"] == torch.__version__.split("+")[0] or "+" in result["versions"]["torch"]


BAD = {
    "X_i has shape [5], not [6]": Update(torch.ones(5), ONES, 0.0),
    "X_i is torch.float64": Update(ONES.double(), ONES, 0.0),
    "X_i is not finite": Update(ONES * torch.nan, ONES, 0.0),
    "ΔC is not finite": Update(ONES, torch.tensor([1, 1, 1, torch.inf, 1, 1]), 0.0),
    "ΔC has shape [0], not [6]": Update(ONES, torch.zeros(0), 0.0),
    "X_i has shape [600], not [6]": Update(torch.ones(600), ONES, 0.0),
    "its loss is not finite": Update(ONES, ONES, float("nan")),
    "out of memory": Failure("out of memory"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_reply_is_dropped_and_named_and_the_others_count(
    reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runlog = RunLog(tmp_path, {})
    server = run_rounds(plan(rounds=2), [0, 1], start(), Engine(BAD[reason], (1,)), evaluate, runlog)
    runlog.finish({"w": server.X})
    torch.testing.assert_close(server.X, torch.full((6,), 0.5 + 1.0))  # 1/n, n = 2, for the one reply
    assert f"round 1: client 1 is dropped: {reason}" in caplog.text
    ((said, count),) = json.loads((tmp_path / "result.json").read_text())["dropped"]["1"].items()
    assert said.startswith(reason)
    assert count == 1


def test_an_update_far_larger_than_the_others_is_dropped_where_a_bound_is_set(tmp_path: Path) -> None:
    for name, bad in (("X_i - X", Update(1000 * ONES, ONES, 0.5)), ("ΔC_i", Update(ONES, 11 * ONES, 0.5))):
        engine = Engine(bad, (1,))
        bounded = Plan(0, 3, 1, 1, 1.0, 0.0, False, norm_bound=10.0)
        runlog = RunLog(tmp_path / name, {})
        server = run_rounds(bounded, [0, 1, 2], start(), engine, evaluate, runlog)
        torch.testing.assert_close(server.X, 2 / 3 * ONES)
        runlog.finish({"w": server.X})
        said = json.loads((tmp_path / name / "result.json").read_text())["dropped"]["1"]
        assert [f"‖{name}‖ = " in reason for reason in said] == [True]
        free = run_rounds(
            Plan(0, 3, 1, 1, 1.0, 0.0, False),
            [0, 1, 2],
            start(),
            engine,
            evaluate,
            RunLog(tmp_path / f"{name} free", {}),
        )
        assert not torch.equal(free.X + free.C, server.X + server.C)


def test_a_value_that_is_no_number_is_null_in_the_log(tmp_path: Path) -> None:
    said = {"accuracy": 0.5, "loss": float("nan")}
    run_rounds(plan(1), [0, 1], start(), Engine(good(X0), ()), lambda X: said, RunLog(tmp_path, {}))
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["test_loss"] is None


def test_many_clients_over_many_rounds_do_not_swell_the_checkpoint(tmp_path: Path) -> None:
    """1,000 clients a round: cohorts are a log beside it. They were in its header, which may have 100 MB."""
    everyone = list(range(1000))
    runlog = RunLog(tmp_path, {}, keeping=CheckpointOptions("", 20))
    run_rounds(replace(plan(40), clients_per_round=1000), everyone, start(), Engine(good(X0), ()), evaluate, runlog)
    assert (tmp_path / "checkpoint.safetensors").stat().st_size < 30_000  # 24 bytes a client, and 6 numbers a vector
    lines = [json.loads(line) for line in (tmp_path / "cohorts.jsonl").read_text().splitlines()]
    assert lines == [{"round": r, "clients": everyone} for r in range(1, 41)]


def test_a_lost_log_of_cohorts_is_said_and_nothing_is_changed(tmp_path: Path) -> None:
    run_rounds(
        plan(4), [0, 1], start(), Engine(good(X0), ()), evaluate, RunLog(tmp_path, {}, keeping=CheckpointOptions("", 2))
    )
    (tmp_path / "result.json").write_text("{}")
    lines = (tmp_path / "cohorts.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cohorts.jsonl").write_text("".join(lines[:-1]) + lines[-1][:5])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"cohorts.jsonl there has 3 rounds of 4"):
        RunLog(tmp_path, {}, keeping=CheckpointOptions("", 2, resume=True)).begin(start(), 0, 6)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_reasons_are_counted_and_not_without_end(tmp_path: Path) -> None:
    runlog = RunLog(tmp_path, {})
    for k in range(100):
        runlog.counts.drop(3, "away" if k % 2 else f"reason {k}")
    assert len(runlog.counts.dropped[3]) == 11
    assert runlog.counts.dropped[3]["away"] == 50
    assert sum(runlog.counts.dropped[3].values()) == 100


def test_two_rounds_without_a_good_reply_leave_X_and_C_and_the_run_goes_on(tmp_path: Path) -> None:
    engine = Engine(Failure("away"), (1, 2), clients=(0, 1))
    server = run_rounds(plan(rounds=3), [0, 1], start(), engine, evaluate, RunLog(tmp_path, {}))
    torch.testing.assert_close(server.X, ONES)
    torch.testing.assert_close(server.C, ONES)


def test_a_run_that_is_resumed_does_not_forget_its_silent_rounds(tmp_path: Path) -> None:
    """Each retry brought two more rounds, until none was left, and the run was called complete."""
    engine, keeping = Engine(Failure("diverged"), range(9), clients=(0, 1)), CheckpointOptions("", 1, resume=True)
    for _ in range(4):
        with pytest.raises(NoGoodReplyError, match="no good reply in 3 rounds in a row: diverged"):
            run_rounds(plan(rounds=7), [0, 1], start(), engine, evaluate, RunLog(tmp_path, {}, keeping=keeping))
        assert checkpoint.rounds_in(tmp_path) == 2
    assert not (tmp_path / "result.json").exists()
    away = Engine(Failure("away"), ())  # what was wrong is mended
    run_rounds(plan(rounds=7), [0, 1], start(), away, evaluate, RunLog(tmp_path, {}, keeping=keeping))


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_in_which_no_reply_ever_counted_has_failed(rounds: int, tmp_path: Path) -> None:
    engine, keeping = Engine(Failure("diverged"), range(9), clients=(0, 1)), CheckpointOptions("", 1, resume=True)
    for _ in range(2):
        with pytest.raises(NoGoodReplyError, match=f"no good reply in any round of {rounds}: diverged"):
            run_rounds(plan(rounds), [0, 1], start(), engine, evaluate, RunLog(tmp_path, {}, keeping=keeping))


def test_after_three_such_rounds_it_stops_with_the_clients_words(tmp_path: Path) -> None:
    engine = Engine(Failure("CUDA out of memory"), (2, 3, 4), clients=(0, 1))
    with pytest.raises(NoGoodReplyError, match="3 rounds in a row: CUDA out of memory"):
        run_rounds(plan(rounds=9), [0, 1], start(), engine, evaluate, RunLog(tmp_path, {}))
    assert (tmp_path / "metrics.jsonl").exists()
    assert not (tmp_path / "result.json").exists()


def test_the_gradient_start_asks_everyone_in_round_0(tmp_path: Path) -> None:
    asked = []

    def engine(call_id: CallId, sampled: Cohort, X: Tensor, C: Tensor) -> Replies:
        asked.append((call_id.round, list(sampled)))
        return {i: Update(X, ONES, 0.0) for i in sampled}

    server = run_rounds(plan(1, gradient_start=True), [0, 1, 2], start(), engine, evaluate, RunLog(tmp_path, {}))
    assert asked[0] == (0, [0, 1, 2])
    assert len(asked[1][1]) == 2
    torch.testing.assert_close(server.C, ONES + 2 / 3)


def test_clients_without_data_are_left_out_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    assert nonempty_clients({0: 5, 1: 0, 2: 7}, S=2) == [0, 2]
    assert "client 1; n = 2" in caplog.text
    with pytest.raises(InputError, match=r"clients_per_round = 3: only 2"):
        nonempty_clients({0: 5, 1: 0, 2: 7}, S=3)


def test_a_folder_that_holds_a_run_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("kept")
    with pytest.raises(InputError, match="holds a run already"):
        RunLog(tmp_path, {})
    assert (tmp_path / "metrics.jsonl").read_text() == "kept"
