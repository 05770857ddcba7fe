"""Sites with data of their own that join, leave, are killed and come back, and a server that is: C = (1/n) Σ C_i."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message
from PIL import Image

from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.runlog import RunLog
from tests.deployment.invariant import difference as off
from tests.flower.fake_grid import FakeGrid
from tests.flower.test_losses import Crash
from tests.flower.test_strategy import config, grid_of, train

N, EVENTS = 4, 50


def sites(folder: Path) -> list[str]:
    for node in (*range(N), "server"):
        for name in ("cat", "dog"):
            (folder / str(node) / name).mkdir(parents=True)
            for i in range(3):
                pixels = np.full((28, 28), 60 * i + (20 if name == "cat" else 0), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / str(node) / name / f"{i}.png")
    return [
        "partition=own", "dataset=image_folder", "dataset.classes=[cat,dog]", f"dataset.path={folder / 'server'}",
        f"federation.num_clients={N}", "federation.clients_per_round=4", "federation.min_replies=1",
        "federation.connect_timeout=0.05", "federation.grace=0", "local.steps=1", "local.batch_size=4",
        "evaluation.every=1000", "checkpoint.every=3",
    ]  # fmt: skip


def with_sites(grid: FakeGrid, folder: Path, state: Path) -> FakeGrid:
    for context in grid.contexts.values():
        node = context.node_config["partition-id"]
        context.node_config |= {"data-path": str(folder / str(node)), "state-dir": str(state / str(node))}
    return grid


def test_fifty_joins_leaves_kills_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, draw = sites(tmp_path / "sites"), random.Random(5)
    everyone = with_sites(grid_of(config(*words), N), tmp_path / "sites", tmp_path / "states").contexts
    kinds = dict.fromkeys(("join", "leave", "killed", "crash", "resume"), 0)
    there, rounds = dict(list(everyone.items())[:3]), 0  # the fourth comes later
    monkeypatch.setattr(RunLog, "keeps", False)  # a crash writes no last checkpoint

    def event(grid: FakeGrid) -> str:
        away = [node for node in everyone if node not in grid.contexts]
        kind = draw.choice(["join"] * bool(away) + ["leave", "killed"] * (len(grid.contexts) > 1) + ["crash"])
        kinds[kind] += 1
        if kind == "join":
            node = draw.choice(away)
            grid.contexts[node] = everyone[node]
        elif kind != "crash":
            del grid.contexts[draw.choice(list(grid.contexts))]
        return kind

    while sum(kinds.values()) < EVENTS:
        rounds += draw.randrange(2, 12)
        grid = with_sites(grid_of(config(*words), N), tmp_path / "sites", tmp_path / "states")
        grid.contexts = there
        calls = 0

        def tamper(call: Message, reply: Message, grid: FakeGrid = grid) -> Message | None:
            nonlocal calls
            calls += 1
            if calls % 4 or sum(kinds.values()) >= EVENTS:
                return reply
            kind = event(grid)
            if kind == "crash":
                raise Crash
            return None if kind == "killed" else reply  # it has trained, and nobody hears of it

        grid.tamper = tamper
        try:
            train(config(*words, f"rounds={rounds}", "resume=auto"), grid, tmp_path / "run", timeout=0.05)
            kinds["resume"] += 1
        except Crash:
            pass
    last = with_sites(grid_of(config(*words), N), tmp_path / "sites", tmp_path / "states")
    train(config(*words, f"rounds={rounds + 3}", "resume=auto"), last, tmp_path / "run", timeout=0.05)
    standing, _ = checkpoint.read(tmp_path / "run")
    assert list(standing.clients) == [0, 1, 2, 3]
    assert set(standing.counted) == {0, 1, 2, 3}
    assert min(kinds.values()) >= 3
    assert off(tmp_path / "run", [tmp_path / "states" / str(node) for node in range(N)], N) < 1e-6


def test_one_who_is_away_at_a_resume_counts_and_one_who_comes_late_is_asked(tmp_path: Path) -> None:
    words = [*sites(tmp_path / "sites"), "rounds=2"]
    grid = with_sites(grid_of(config(*words), N), tmp_path / "sites", tmp_path / "states")
    late, context = list(grid.contexts.items())[1]
    del grid.contexts[late]
    asked: list[tuple[int, int]] = []

    def tamper(call: Message, reply: Message) -> Message:
        about = call.content.config_records["call"]
        asked.append((int(about["round"]), int(about["client"])))  # type: ignore[call-overload]
        grid.contexts[late] = context  # in round 1
        return reply

    grid.tamper = tamper
    train(config(*words), grid, tmp_path / "run", timeout=0.05)
    assert {i for r, i in asked if r == 1} == {0, 2, 3}
    assert {i for r, i in asked if r == 2} == {0, 1, 2, 3}
    del grid.contexts[late]
    grid.tamper = lambda call, reply: reply
    train(config(*words, "rounds=4", "resume=auto"), grid, tmp_path / "run", timeout=0.05)
    assert list(checkpoint.read(tmp_path / "run")[0].clients) == [0, 1, 2, 3]
    assert off(tmp_path / "run", [tmp_path / "states" / str(node) for node in range(N)], N) < 1e-6


def test_a_server_without_any_data_goes_by_what_the_clients_say(tmp_path: Path) -> None:
    words = [*sites(tmp_path / "sites"), "rounds=6", "evaluation.every=2", "dataset.client_validation=0.34"]
    words = [word for word in words if not word.startswith(("dataset.path", "dataset="))] + ["dataset=none"]
    with pytest.raises(InputError, match=r"dataset\.path = null: name labelled pictures"):
        build(config(*words))
    with pytest.raises(InputError, match="must be null with dataset = none"):
        build(config(*words, "evaluation.clients=all", f"dataset.path={tmp_path}"))
    c = config(*words, "evaluation.clients=all", "checkpoint.best=true", "algorithm.lr=0.02")
    grid = with_sites(grid_of(c, N), tmp_path / "sites", tmp_path / "states")
    strategy = train(c, grid, tmp_path / "run")
    strategy._runlog.finish(strategy.experiment.model(strategy.server.X), strategy.experiment.about_model(c))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["test_accuracy"] for line in lines] == [line["client_accuracy"] for line in lines]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["best_accuracy"] == max(line["client_accuracy"] for line in lines)
    assert (tmp_path / "run" / "model.best.safetensors").exists()
    assert not len(strategy.experiment.data.test)
