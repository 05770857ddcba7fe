"""Each side against the other: every attack is refused in a sentence, logged, counted, and the run goes on rightly.

Messages are real, the ClientApp is ours, and C is compared with the states that the clients keep.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message

from fedmuon_app.config import Config, shared
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.folder import RESULT
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.flower.records import FLAT, to_record
from fedmuon_app.flower.site import digest
from tests.flower.fake_grid import FakeGrid
from tests.flower.test_losses import difference
from tests.flower.test_strategy import another_run, config, grid_of, replace_array, train

ALL = ["federation.clients_per_round=4", "rounds=3", "checkpoint.every=1"]
VICTIM = 3  # the client whose node means no good

Reply = Callable[[Message, Message], Message | None]


def written(name: str, key: str, value: Any) -> Reply:
    """The reply with another value in one of its records."""

    def change(call: Message, reply: Message) -> Message:
        record = dict(reply.content.config_records[name]) | {key: value}
        reply.content[name] = ConfigRecord(record)
        return reply

    return change


def header_of(count: int) -> Reply:
    """An array whose header promises so many numbers."""

    def change(call: Message, reply: Message) -> Message:
        good = to_record_bytes(np.zeros(4, np.float32))
        bad = good.replace(b"(4,)", b"(%d,)" % count)
        bad = bad[:8] + (len(bad) - 16 - 10).to_bytes(2, "little") + bad[10:]
        reply.content["X"] = ArrayRecord({FLAT: Array("float32", (count,), "numpy.ndarray", bad)})
        return reply

    return change


def to_record_bytes(x: np.ndarray) -> bytes:
    import torch

    return to_record(torch.from_numpy(x))[FLAT].data


def said(reason: str) -> Reply:
    return lambda call, reply: Message(Error(code=2, reason=reason), reply_to=call)


def replayed() -> Reply:
    kept: list[Message] = []

    def change(call: Message, reply: Message) -> Message:
        kept.append(reply)
        return Message(kept[0].content, reply_to=call)

    return change


def times(factor: float, name: str = "dC") -> Reply:
    return lambda call, reply: replace_array(name, lambda x: x * np.float32(factor))(reply)


ATTACKS: dict[str, tuple[Reply, str]] = {
    "the words of a dead actor": (said("ray.exceptions.ActorDiedError: the actor died"), "ActorDiedError"),
    "a reason of a megabyte": (said("x" * 2**20), "xxxx"),
    "a reason that forges lines of the log": (
        said("a\x1b[2J\rb\tWARNING fedmuon: all is well"),
        "b?WARNING fedmuon: all is well",
    ),
    "an experiment of 10 MB": (written("answers", "experiment", "ab" * 5 * 2**20), "it answers another call"),
    "a name that climbs": (written("answers", "experiment", "../../etc"), "it answers another call"),
    "a client above n": (written("answers", "client", 2**62), "it answers another call"),
    "a negative round": (written("answers", "round", -1), "it answers another call"),
    "a record full of lists": (written("answers", "attempt", list(range(10**5))), "it answers another call"),
    "a replayed reply": (replayed(), "it answers another call"),
    "another run's reply": (lambda call, reply: another_run(reply), "it answers another call"),
    "an array of a terabyte": (header_of(2**38), "its reply cannot be read"),
    "an array of a negative size": (header_of(-7), "X_i has shape [4]"),
    "an array of nothing": (header_of(0), "X_i has shape [0]"),
    "ΔC times 1e30": (times(1e30), "‖ΔC_i‖ = "),
    "ΔC times 1e38": (times(1e38), "‖ΔC_i‖ = inf"),
    "X_i far away": (times(1e4, "X"), "‖X_i - X‖ = "),
    "a loss that is infinite": (
        lambda call, reply: _with_loss(reply, float("inf")),
        "its loss is not finite",
    ),
}


def _with_loss(reply: Message, loss: float) -> Message:
    reply.content.metric_records["metrics"]["train-loss"] = loss
    return reply


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_client_that_means_no_good_is_dropped_and_C_stays_right(
    attack: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    c = config(*ALL)
    change, reason = ATTACKS[attack]

    def tamper(call: Message, reply: Message) -> Message | None:
        mine = call.content.config_records["call"]["client"] == VICTIM
        first = attack == "a replayed reply" and call.content.config_records["call"]["round"] == 1
        changed = change(call, reply) if mine else reply
        return reply if first else changed

    strategy = train(c, grid_of(c, tamper=tamper), tmp_path / "run")
    strategy._runlog.finish({}, {})
    lines = [line for line in caplog.text.splitlines() if f"client {VICTIM} is dropped" in line]
    assert lines
    assert reason in lines[0]
    assert all(len(line) < 500 and line.isprintable() for line in caplog.text.splitlines())
    dropped = json.loads((tmp_path / "run" / RESULT).read_text())["dropped"]
    assert set(dropped) == {str(VICTIM)}
    assert sum(dropped[str(VICTIM)].values()) == 3 - (attack == "a replayed reply")
    assert difference(c, tmp_path / "run", tmp_path / "state") < 1e-6
    checkpoint.read(tmp_path / "run")


def test_updates_within_the_bound_that_add_up_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config(*ALL, "rounds=12", "local.steps=1", "evaluation.every=12")

    def tamper(call: Message, reply: Message) -> Message | None:
        if call.content.config_records["call"]["client"] != VICTIM:
            return reply
        return replace_array("dC", lambda x: np.full_like(x, 9 * BOUND[0] / np.sqrt(len(x))))(reply)

    BOUND = [0.0]
    honest = tamper

    def measured(call: Message, reply: Message) -> Message | None:
        if call.content.config_records["call"]["client"] != VICTIM:
            dC = np.frombuffer(reply.content.array_records["dC"][FLAT].data[128:], np.float32)
            BOUND[0] = float(np.linalg.norm(dC))
        return honest(call, reply)

    train(c, grid_of(c, tamper=measured), tmp_path / "run")
    assert "clients may be bending it little by little" in caplog.text


# nodes


def claims(grid: FakeGrid, node: int, ids: list[int], sizes: list[Any], notes: list[str] | None = None) -> None:
    """Let that node say so, whatever it is asked."""
    push = grid.push_messages

    def lie(messages: Any) -> list[str]:
        sent = list(messages)
        done = push(sent)
        for message, id_ in zip(sent, done, strict=True):
            if message.metadata.dst_node_id == node and message.metadata.message_type == "query":
                record = ConfigRecord({"ids": ids, "sizes": sizes, "notes": notes or []})
                grid._replies[id_].content["clients"] = record
        return done

    grid.push_messages = lie  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("ids", "sizes", "why"),
    [
        ([0, 7], [5, 5], "its clients' ids must lie between 0 and 3"),
        ([-1], [5], "its clients' ids must lie between 0 and 3"),
        ([0], [-5], "its clients' ids must lie between 0 and 3"),
        ([0], [2**62], "its clients' ids must lie between 0 and 3"),
        (list(range(10**5)), [1] * 10**5, "its clients' ids must lie between 0 and 3"),
        ([0, 1], [5], "cannot be read"),
    ],
)
def test_a_node_that_claims_nonsense_is_left_out_and_the_others_go_on(
    ids: list[int], sizes: list[int], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    c = config("federation.connect_timeout=0.3", "checkpoint.every=1")
    grid = grid_of(c)
    liar = next(iter(grid.contexts))  # plays client 0
    claims(grid, liar, ids, sizes)
    train(c, grid, tmp_path / "run")
    assert f"node {liar}" in caplog.text
    assert why in caplog.text
    assert all(len(line) < 500 for line in caplog.text.splitlines())
    standing, _ = checkpoint.read(tmp_path / "run")
    assert list(standing.clients) == [0, 1, 2, 3]
    assert 0 not in standing.owners
    assert difference(c, tmp_path / "run", tmp_path / "state") < 1e-6


def test_a_million_notes_of_a_node_are_ten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config()
    grid = grid_of(c)
    claims(grid, next(iter(grid.contexts)), [0], [5], [f"note {i}" + "!" * 1000 for i in range(10**4)])
    train(c, grid, tmp_path / "run")
    assert caplog.text.count("note ") == 10


def test_a_node_that_says_nothing_holds_no_round(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config("federation.connect_timeout=0.3")
    grid = grid_of(c)
    silent, push = next(iter(grid.contexts)), grid.push_messages

    def swallow(messages: Any) -> list[str]:
        sent = list(messages)
        done = push(sent)
        for message, id_ in zip(sent, done, strict=True):
            if message.metadata.dst_node_id == silent:
                grid._replies.pop(id_, None)
        return done

    grid.push_messages = swallow  # type: ignore[method-assign]
    train(c, grid, tmp_path / "run", timeout=60)
    assert f"node {silent} (SHA256:" in caplog.text
    assert "cannot take part: no answer in 0.3 s" in caplog.text


def test_the_first_node_that_claims_all_clients_keeps_none_that_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from fedmuon_app.flower.keys import fingerprint

    c = config("federation.nodes=" + str(tmp_path / "nodes.yaml"), "checkpoint.every=1")
    grid = grid_of(c)
    keys = {i.node_id: fingerprint(i.public_key) for i in grid.get_nodes()}
    liar, *honest = grid.contexts
    lines = [f"{keys[node]}: [{grid.contexts[node].node_config['partition-id']}]" for node in grid.contexts]
    (tmp_path / "nodes.yaml").write_text("\n".join(lines))
    claims(grid, liar, [0, 1, 2, 3], [5, 5, 5, 5])
    train(c, grid, tmp_path / "run")
    assert f"node {liar} ({keys[liar]}) claims clients [1, 2, 3]" in caplog.text
    for node in honest:
        assert f"node {node} ({keys[node]}) claims" not in caplog.text
    caplog.clear()
    (tmp_path / "nodes.yaml").write_text("\n".join(lines[1:]))  # the liar is struck off
    c.federation.connect_timeout = 0.3
    train(c, grid, tmp_path / "other")
    assert f"node {liar} ({keys[liar]}) cannot take part: its key is not in federation.nodes" in caplog.text


def test_a_client_stays_its_keys_in_every_life_of_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    c = config("federation.connect_timeout=0.3", "checkpoint.every=1", "rounds=3")
    grid = grid_of(c)
    train(c, grid, tmp_path / "run")
    thief = 2**63 + 5
    owner, context = next(iter(grid.contexts.items()))
    again = config("federation.connect_timeout=0.3", "checkpoint.every=1", "rounds=5", "resume=auto")
    grid.contexts = {thief: context, **{n: x for n, x in grid.contexts.items() if n != owner}}  # it is there first
    train(again, grid, tmp_path / "run")
    assert f"node {thief} (SHA256:" in caplog.text
    assert "claims clients [0], which belong to other keys" in caplog.text
    standing, _ = checkpoint.read(tmp_path / "run")
    assert standing.counted.get(0, standing.saved.get(0)) is None or standing.counted[0].attempt == 1
    assert list(standing.clients) == [0, 1, 2, 3]


# the server


class Asked(FakeGrid):
    """Nodes whose server sends them another configuration from some round on."""

    def __init__(self, change: Callable[[str], str], from_round: int) -> None:
        super().__init__(4, {})
        self._change, self._from = change, from_round
        self.errors: list[str] = []

    def push_messages(self, messages: Any) -> list[str]:
        sent = list(messages)
        for message in sent:
            records = message.content.config_records
            if "call" in records and int(records["call"]["round"]) >= self._from:  # type: ignore[call-overload]
                text = self._change("")
                message.content["call"] = ConfigRecord({**records["call"], "hash": digest(text)})
            if "about" in records and self._from == 0:
                message.content["about"] = ConfigRecord({**records["about"], "config": self._change("")})
        done = super().push_messages(sent)
        self.errors += [r.error.reason for r in self._replies.values() if r.has_error()]
        return done


def test_a_configuration_that_changes_in_mid_run_is_refused(tmp_path: Path) -> None:
    c = config("rounds=6", "checkpoint.every=1")
    grid = Asked(lambda _: shared(config("algorithm.lr=9")), from_round=3)
    with pytest.raises(Exception, match="has not been asked with this configuration"):
        train(c, grid, tmp_path / "run")
    assert checkpoint.rounds_in(tmp_path / "run") >= 2
    assert difference(c, tmp_path / "run", tmp_path / "state") < 1e-6


def test_asked_again_with_another_one_the_node_says_so(tmp_path: Path) -> None:
    c = config("rounds=2", "checkpoint.every=1")
    train(c, grid_of(c), tmp_path / "run")
    other = config("rounds=4", "checkpoint.every=1", "resume=auto", "federation.connect_timeout=0.3")
    grid = Asked(lambda _: shared(config("algorithm.lr=9", "rounds=4")), from_round=0)
    with pytest.raises(Exception, match="this experiment had another configuration before: only rounds may change"):
        train(other, grid, tmp_path / "run")


def refused(c: Config, text: str, tmp_path: Path, **node: Any) -> str:
    """What a node answers to a server with that configuration."""
    grid = Asked(lambda _: text, from_round=0)
    for context in grid.contexts.values():
        context.node_config.update(node)
    c.federation.connect_timeout = 0.3
    with pytest.raises(Exception, match="0 clients are connected"):
        train(c, grid, tmp_path / "run")
    assert len(set(grid.errors)) == 1
    return grid.errors[0]


@pytest.mark.parametrize(
    "target",
    [
        "torch.hub.load",
        "torch.load",
        "joblib.load",
        "pandas.read_pickle",
        "builtins.exec",
        "os.system",
        "subprocess.Popen",
        "hydra.utils.instantiate",
        "fedmuon_app.models.lenet.torch.hub.load",
        "fedmuon_app.models.lenet.nn.Sequential",
        "fedmuon_app.engines.deployment.run",
        "torchvision.models.resnet18",
    ],
)
def test_no_server_has_a_node_call_anything_but_a_model(target: str, tmp_path: Path) -> None:
    text = json.dumps(json.loads(shared(config())) | {"model._target_": target})
    said = refused(config(), text, tmp_path)
    assert f"model._target_ = {target}: the module " in said
    assert "is not among the modules that this node allows" in said


EXPLOSIVE = """
from pathlib import Path
from torch import nn
called = Path(__file__).with_name("called")
def function(**kwargs): called.touch()
class Plain:
    def __init__(self, **kwargs): called.touch()
class Model(nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        self.layer = nn.Linear(784, 10)
    def forward(self, x): return self.layer(x.flatten(1))
"""


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("function", {}, "it is no class of torch modules"),
        ("Plain", {}, "it is no class of torch modules"),
        ("nothing", {}, "it is not there"),
        ("Model", {"model._args_": [1]}, "its arguments must be plain values"),
        ("Model", {"model.inner": {"_target_": "os.getcwd"}}, "its arguments must be plain values"),
        ("Model", {"model.inner": [{"_target_": "os.getcwd"}]}, "its arguments must be plain values"),
    ],
)
def test_of_an_allowed_module_only_torch_modules_are_built(
    name: str, more: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sites_own.py").write_text(EXPLOSIVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = json.dumps(json.loads(shared(config())) | {"model._target_": f"sites_own.{name}"} | more)
    assert why in refused(config(), text, tmp_path, allow="sites_own")
    assert not (tmp_path / "called").exists()


def test_a_model_of_an_allowed_module_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sites_own.py").write_text(EXPLOSIVE)
    monkeypatch.syspath_prepend(str(tmp_path))
    c = config("model=custom", "model._target_=sites_own.Model")
    grid = grid_of(c)
    for context in grid.contexts.values():
        context.node_config["allow"] = "torchvision.models, sites_own"
    assert train(c, grid, tmp_path / "run").server.C.abs().sum() > 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"engine.name": "simulation"}, "engine.name: a node decides that by itself"),
        ({"run_dir": "/home/somebody"}, "run_dir: a node decides that by itself"),
        ({"dataset.path": "/home/somebody"}, "dataset.path: a node decides that by itself"),
        ({"device": "cuda"}, "device: a node decides that by itself"),
        ({"federation.nodes": "/etc/passwd"}, "federation.nodes: a node decides that by itself"),
        ({"dataset": {"path": "/home/somebody"}}, "dataset: a node decides that by itself"),
        ({"algorithm.name": "${oc.env:HOME}"}, "algorithm.name: no interpolations are taken"),
        ({"dataset.classes": ["${oc.env:HOME}"]}, "dataset.classes: no interpolations are taken"),
        ({"local.steps": -1}, "local.steps = -1: must be at least 1"),
        ({"local.steps": "many"}, "local.steps"),
        ({"local.steps": 10**300}, "local.steps"),
        ({"algorithm.lr": {"a": 1}}, "algorithm.lr"),
    ],
)
def test_no_server_decides_what_is_the_nodes(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    text = json.dumps(json.loads(shared(config())) | more)
    assert f"the server's configuration is refused: {why}" in refused(config(), text, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10_000, "x" * 10**6, '{"seed": NaN}', "seed: 0"])
def test_a_text_that_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    assert "the server's configuration is refused: " in refused(config(), text, tmp_path)


@pytest.mark.parametrize("name", ["../../../etc/x", "/etc/x", "", "ab/cd", "AB", "a" * 100, "ab\0", "·" * 8])
def test_an_experiment_with_a_name_that_climbs_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = config("federation.connect_timeout=0.3")
    monkeypatch.setattr(RunLog, "experiment", property(lambda self: name, lambda self, value: None), raising=False)
    before = {p for p in tmp_path.rglob("*") if "run" not in p.parts}
    with pytest.raises(Exception, match="an experiment's name must be a hexadecimal number"):
        train(c, grid_of(c), tmp_path / "run")
    assert {p for p in tmp_path.rglob("*") if "run" not in p.parts} == before
