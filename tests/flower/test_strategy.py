import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp.strategy import Strategy
from PIL import Image
from safetensors.torch import load_file

from fedmuon_app.config import Config, load
from fedmuon_app.engines import in_process
from fedmuon_app.errors import RunError
from fedmuon_app.experiment import build, keeping
from fedmuon_app.federation.loop import NoGoodReplyError
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.flower.records import FLAT, from_record, to_record
from fedmuon_app.flower.strategy import FedMuonStrategy
from tests.flower.fake_grid import FakeGrid, Tamper

SMALL = [
    "federation.num_clients=4",
    "federation.clients_per_round=2",
    "local.steps=2",
    "local.batch_size=16",
    "rounds=3",
    "evaluation.every=3",
]


def config(*overrides: str) -> Config:
    return load([*SMALL, "engine=deployment", *overrides])


def grid_of(c: Config, nodes: int = 4, tamper: Tamper = lambda call, reply: reply) -> FakeGrid:
    return FakeGrid(nodes, {}, tamper)


def train(c: Config, grid: FakeGrid, folder: Path, timeout: float = 0.2) -> FedMuonStrategy:
    strategy = FedMuonStrategy(build(c), RunLog(folder, {}, keeping=keeping(c)), c)
    strategy.start(grid, to_record(strategy.experiment.server.X), c.rounds, timeout)
    return strategy


@pytest.mark.parametrize("nodes", [4, 2, 1, 7])
@pytest.mark.parametrize("start", ["zeros", "gradient"])
def test_however_many_nodes_there_are_X_is_that_of_one_process(nodes: int, start: str, tmp_path: Path) -> None:
    c = config(f"algorithm.start={start}")
    in_process.run(c, tmp_path / "alone")  # the engine of a configuration is for the command to look at
    strategy = train(c, grid_of(c, nodes), tmp_path / "flower")
    expected = load_file(tmp_path / "alone" / "model.safetensors")
    assert torch.equal(strategy.server.X, strategy.experiment.clients.objective.layout.flat(expected))


def test_flowers_own_loop_drives_the_hooks_to_the_same_X(tmp_path: Path) -> None:
    c = config("algorithm=muloco")
    ours = train(c, grid_of(c), tmp_path / "ours")
    theirs = FedMuonStrategy(build(c), RunLog(tmp_path / "theirs", {}), c)
    result = Strategy.start(theirs, grid_of(c), to_record(theirs.experiment.server.X), num_rounds=3)
    assert torch.equal(theirs.server.X, ours.server.X)
    assert torch.equal(from_record(result.arrays), ours.server.X)


def test_flowers_own_loop_keeps_the_C_i_that_a_rule_needs(tmp_path: Path) -> None:
    c = config("federation.aggregate=median", "checkpoint.every=null", "federation.clients_per_round=3")
    ours = train(c, grid_of(c), tmp_path / "ours")
    theirs = FedMuonStrategy(build(c), RunLog(tmp_path / "theirs", {}), c)
    Strategy.start(theirs, grid_of(c), to_record(theirs.experiment.server.X), num_rounds=3)
    assert torch.equal(theirs.server.X, ours.server.X)
    assert torch.equal(theirs.server.C, ours.server.C)


def replace_array(record: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Message], Message]:
    def change(reply: Message) -> Message:
        x = from_record(reply.content.array_records[record]).numpy()
        reply.content[record] = ArrayRecord({FLAT: Array(make(x))})
        return reply

    return change


def no_record(reply: Message) -> Message:
    del reply.content["dC"]
    return reply


def another_name(reply: Message) -> Message:
    reply.content["dC"] = ArrayRecord({"x": reply.content.array_records["dC"][FLAT]})
    return reply


def another_client(reply: Message) -> Message:
    answers = reply.content.config_records["answers"]
    reply.content["answers"] = ConfigRecord({**answers, "client": int(answers["client"]) + 1})  # type: ignore[call-overload]
    return reply


def another_run(reply: Message) -> Message:
    answers = reply.content.config_records["answers"]
    reply.content["answers"] = ConfigRecord({**answers, "experiment": "ab12"})
    return reply


def another_node(reply: Message) -> Message:
    reply.metadata.__dict__["_src_node_id"] = 17
    return reply


BAD: dict[str, Callable[[Message], Message | None]] = {
    "X_i has shape [3]": replace_array("X", lambda x: x[:3]),
    "X_i is torch.float64": replace_array("X", lambda x: x.astype(np.float64)),
    "ΔC is not finite": replace_array("dC", lambda x: x * np.nan),
    "its reply cannot be read (KeyError": no_record,
    "its reply cannot be read (ValueError: arrays": another_name,
    "it answers another call": another_client,
    "it answers another call (experiment 'ab12'": another_run,
    "it comes from node 17": another_node,
    "no reply in time": lambda reply: None,
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_reply_is_dropped_with_the_client_and_the_reason(
    reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    c = config("rounds=1")
    spoilt = []

    def tamper(call: Message, reply: Message) -> Message | None:
        if spoilt:
            return reply
        spoilt.append(int(call.content.config_records["call"]["client"]))  # type: ignore[arg-type]
        return BAD[reason](reply)

    strategy = train(c, grid_of(c, tamper=tamper), tmp_path / "run")
    assert f"client {spoilt[0]} is dropped: {reason}" in caplog.text
    assert strategy.server.C.isfinite().all()
    assert strategy.server.C.abs().sum() > 0  # the other client counted


def test_error_replies_stop_the_run_with_their_own_text(tmp_path: Path) -> None:
    c = config()
    failing = grid_of(c, tamper=lambda call, _: Message(Error(code=2, reason="disk full"), reply_to=call))
    with pytest.raises(NoGoodReplyError, match="disk full"):
        train(c, failing, tmp_path / "run")


def test_a_client_that_diverges_keeps_its_state(tmp_path: Path) -> None:
    c = config("algorithm=fedavg", "algorithm.lr=1e30", "algorithm.momentum=heavy_ball")
    grid = grid_of(c)
    with pytest.raises(Exception, match="not finite after 2 local steps"):
        train(c, grid, tmp_path / "run")
    assert not list((tmp_path / "state").rglob("*.safetensors"))


def test_clients_without_a_node_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config("federation.clients_per_round=4", "federation.connect_timeout=0.1")
    grid = grid_of(c, nodes=4)
    del grid.contexts[next(iter(grid.contexts))]
    with pytest.raises(RunError, match="3 clients are connected, and a round needs 4"):
        train(c, grid, tmp_path / "run")
    assert "not connected: client 0" in caplog.text


def test_a_run_writes_its_evaluations(tmp_path: Path) -> None:
    c = config("algorithm=fedavg")
    train(c, grid_of(c), tmp_path / "run")
    (line,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    size = len(build(c).server.X)
    assert line["bytes_up"] == 3 * 2 * 4 * size  # no C for FedAvg


def test_a_node_with_a_folder_of_its_own_trains_on_that(tmp_path: Path) -> None:
    for node, (name, count) in enumerate((("cat", 5), ("dog", 3))):
        for folder in (tmp_path / f"node{node}" / name, tmp_path / "server" / name):
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(np.full((28, 28), 40 * i, dtype=np.uint8)).save(folder / f"{i}.png")
    c = config(
        "dataset=image_folder", "dataset.classes=[cat,dog]", "partition=own",
        "model.num_classes=2", "federation.num_clients=2",
        f"dataset.path={tmp_path / 'server'}", "algorithm.lmo.exact=true",
    )  # fmt: skip
    grid = grid_of(c, nodes=2)
    for context in grid.contexts.values():
        context.node_config["data-path"] = str(tmp_path / f"node{context.node_config['partition-id']}")
    asked = []
    grid.tamper = lambda call, reply: asked.append(reply.content.metric_records["metrics"]["num-examples"]) or reply
    train(c, grid, tmp_path / "run")
    assert asked == [5, 3] * 3


JUDGED = ["dataset.client_validation=0.2", "evaluation.clients=all", "evaluation.every=1", "checkpoint.every=1"]


def test_what_clients_say_of_X_is_what_they_say_in_one_process(tmp_path: Path) -> None:
    c = config(*JUDGED)
    in_process.run(c, tmp_path / "alone")
    train(c, grid_of(c), tmp_path / "flower")
    alone, flower = ((tmp_path / name / "clients.jsonl").read_text() for name in ("alone", "flower"))
    assert alone == flower
    line, other = (
        json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1]) for name in ("alone", "flower")
    )
    assert {k: v for k, v in line.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"num-examples": 5, "value": 1.5, "loss": 0.1}, "it says test_accuracy 1.5"),
        ({"num-examples": 5, "value": 0.5, "loss": float("nan")}, "loss nan"),
        ({"num-examples": 0, "value": 0.5, "loss": 0.1}, "0 examples"),
        ({"num-examples": 5, "value": 0.5}, "its reply cannot be read (KeyError"),
        (None, "no reply in time"),
    ],
)
def test_a_verdict_that_cannot_be_is_left_out_and_counted(
    metrics: dict[str, float] | None, why: str, tmp_path: Path
) -> None:
    c = config(*JUDGED)
    grid = grid_of(c)
    push = grid.push_messages

    def lie(messages: object) -> list[str]:
        sent = list(messages)  # type: ignore[call-overload]
        done = push(sent)
        for message, id_ in zip(sent, done, strict=True):
            if message.metadata.message_type == "evaluate" and message.content["call"]["client"] == 2:
                if metrics is None:
                    del grid._replies[id_]
                else:
                    grid._replies[id_].content["metrics"] = MetricRecord(metrics)  # type: ignore[arg-type]
        return done

    grid.push_messages = lie  # type: ignore[method-assign,assignment]
    strategy = train(c, grid, tmp_path / "run")
    strategy._runlog.finish({})
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert any(why in reason for reason in result["dropped"]["2"])
    last = json.loads((tmp_path / "run" / "clients.jsonl").read_text().splitlines()[-1])
    assert set(last["clients"]) == {"0", "1", "3"}
