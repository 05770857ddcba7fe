"""The way in from Python."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedmuon_app as fm
from fedmuon_app.config import load
from fedmuon_app.data import sources
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.models.lenet import LeNet

X, Y = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32), np.arange(200) % 3


class Seen(fm.Callback):
    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.lines: list[int] = []
        self.end = 0

    def after_round(self, r: int, server: object) -> None:
        self.rounds.append(r)

    def after_evaluation(self, line: dict[str, int]) -> None:  # type: ignore[override]
        self.lines.append(line["round"])

    def at_end(self, result: dict[str, int]) -> None:  # type: ignore[override]
        self.end = result["rounds"]


def test_it_is_the_command_lines_run(tmp_path: Path) -> None:
    words = ["federation.num_clients=8", "federation.clients_per_round=4", "rounds=4", "evaluation.every=2"]
    c = load([*words, "engine.workers=0", "seed=3"])
    in_process.run(c, tmp_path / "run")
    experiment, data = build(c), sources.digits()
    pixels = [(part.inputs.float() / 255 - 0.15) / 0.3 for part in (data.train, data.test)]  # type: ignore[union-attr]
    clients = [(pixels[0][part], data.train.targets[part]) for part in experiment.clients.parts]

    def lenet() -> nn.Module:
        return LeNet(num_classes=10, in_channels=1, size=28, padding=2, group_norm=False)

    run = fm.train(
        lenet, clients, (pixels[1], data.test.targets), rounds=4, clients_per_round=4, seed=3,
        overrides=["evaluation.every=2"],
    )  # fmt: skip
    theirs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["test_accuracy"] for line in theirs] == run.log.test_accuracy.tolist()
    assert [line["test_loss"] for line in theirs] == pytest.approx(run.log.test_loss.tolist(), rel=1e-4)


def test_the_model_stays_and_a_trained_copy_comes_back(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    before, seen = model.weight.detach().clone(), Seen()
    run = fm.train(model, fm.deal((X, Y), 5, beta=1.0), (X, Y), rounds=4, callbacks=[seen], folder=tmp_path / "run")
    assert torch.equal(model.weight, before)
    assert not torch.equal(run.model.weight, before)  # type: ignore[arg-type]
    assert (seen.rounds, seen.lines, seen.end) == ([1, 2, 3, 4], [4], 4)
    assert list(run.log.columns[:3]) == ["round", "test_accuracy", "test_loss"]
    assert torch.equal(run.server.X[:18].view(3, 6), run.model.weight)  # type: ignore[arg-type]
    assert run.folder == tmp_path / "run"
    assert (tmp_path / "run" / "result.json").exists()
    longer = fm.train(
        model, fm.deal((X, Y), 5, beta=1.0), (X, Y), rounds=6, folder=tmp_path / "run", overrides=["resume=auto"]
    )
    whole = fm.train(model, fm.deal((X, Y), 5, beta=1.0), (X, Y), rounds=6)
    assert torch.equal(longer.server.X, whole.server.X)


def test_without_a_test(tmp_path: Path) -> None:
    run = fm.train(nn.Linear(6, 3), fm.deal((X, Y), 4, beta=None), rounds=2)
    assert run.log.test_loss.isna().all()
    assert run.log.train_loss.iloc[-1] > 0
    assert run.folder is None


def test_what_cannot_be_is_one_sentence() -> None:
    with pytest.raises(InputError, match="algorithm = fedsoap is unknown"):
        fm.train(nn.Linear(6, 3), [(X, Y)], algorithm="fedsoap")
    with pytest.raises(InputError, match=r"clients\[1\] cannot be read"):
        fm.train(nn.Linear(6, 3), [(X, Y), [1, 2]])
    with pytest.raises(InputError, match="gives outputs of shape"):
        fm.train(nn.Linear(6, 5), [(X, Y)])
    with pytest.raises(InputError, match="no client"):
        fm.train(nn.Linear(6, 3), [])
    with pytest.raises(InputError, match="their examples are not alike"):
        fm.train(nn.Linear(6, 3), [(X, Y), (X[:, :2], Y)])


def test_the_two_functions_below_it() -> None:
    """A loop of one's own: init and round are pure."""
    from fedmuon_app.algorithms.layout import Layout
    from fedmuon_app.algorithms.methods import METHODS, Hyper

    layout, method = Layout.of({"w": torch.zeros(3, 3)}), METHODS["fedmuon"]
    server = fm.initial_server(method, torch.zeros(9))
    states = [fm.initial_state(method, layout, server.X)] * 2
    targets = torch.eye(3).flatten(), -torch.ones(9)
    for _ in range(300):
        updates = []
        for i, a in enumerate(targets):
            gradient = lambda X, batch, a=a: ((X - a).square().sum() / 2, X - a)  # noqa: E731
            update, states[i] = fm.local_round(
                method, Hyper(0.02, 0.02), layout, gradient, server.X, server.C, states[i], [0]
            )
            updates.append(update)
        server = fm.server_step(server, updates, n=2)
    torch.testing.assert_close(server.X, (targets[0] + targets[1]) / 2, atol=0.05, rtol=0)
