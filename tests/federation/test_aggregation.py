"""Whatever the rule, C is that aggregate of the C_i, through refusals and resumes."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.attacks import ATTACKS, attacked
from fedmuon_app.algorithms.aggregation import Rule, median, trimmed_mean
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.server import initial_server, server_step
from fedmuon_app.config import Config, load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.in_process import one_by_one
from fedmuon_app.experiment import build, header, keeping
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.aggregation import Aggregation, bent
from fedmuon_app.federation.checkpoint import RunState, states_beside
from fedmuon_app.federation.loop import nonempty_clients, run_rounds
from fedmuon_app.federation.protocol import NEVER, CallId
from fedmuon_app.federation.runlog import RunLog
from tests.federation.test_loop import good

WORDS = [
    "federation.num_clients=8", "federation.clients_per_round=5", "local.steps=2", "local.batch_size=16", "rounds=6",
    "evaluation.every=6", "checkpoint.every=2", "engine.workers=0",
]  # fmt: skip


def train(c: Config, folder: Path, attack: str | None = None, attackers: int = 2) -> RunLog:
    experiment = build(c)
    runlog = RunLog(folder, header(c, experiment), keeping=keeping(c))
    states = states_beside(folder, 8, experiment.clients.initial_state(), experiment.clients.objective.device)
    engine = one_by_one(experiment, states)
    if attack:
        engine = attacked(engine, ATTACKS[attack], attackers)
    server = run_rounds(
        experiment.plan, nonempty_clients(experiment.sizes(), 5), experiment.server, engine, experiment.evaluate, runlog
    )
    runlog.finish(experiment.model(server.X))
    return runlog


def expected_C(c: Config, folder: Path) -> torch.Tensor:
    """From the clients' own states, as the checkpoint counts them."""
    standing, experiment = checkpoint.read(folder)[0], build(c)
    states = states_beside(folder, 8, experiment.clients.initial_state(), torch.device("cpu"))
    call_ids = [standing.cohort([i])[i].last for i in standing.clients]
    zero = torch.zeros_like(standing.server.C)
    C_i = [zero if t == NEVER else states.load(i, t).C for i, t in zip(standing.clients, call_ids, strict=True)]
    rule = {
        "mean": lambda rows: torch.stack(rows).mean(0),
        "multi_krum": lambda rows: torch.stack(rows).mean(0),
        "trimmed_mean": lambda rows: trimmed_mean(rows, 2),
        "median": median,
    }
    return rule[c.federation.aggregate](C_i)


@pytest.mark.parametrize("method", ["fedmuon", "scaffold"])
@pytest.mark.parametrize("rule", ["mean", "multi_krum", "trimmed_mean", "median"])
def test_C_is_the_aggregate_of_the_C_i_also_after_a_resume(rule: str, method: str, tmp_path: Path) -> None:
    words = [*WORDS, f"federation.aggregate={rule}", f"algorithm={method}"]
    train(load(words), tmp_path / "run")
    longer = load([*words, "rounds=9", "resume=auto"])
    train(longer, tmp_path / "run")
    C = checkpoint.read(tmp_path / "run")[0].server.C
    assert (C - expected_C(longer, tmp_path / "run")).norm() <= 1e-6 * C.norm()
    whole = load([*words, "rounds=9"])
    train(whole, tmp_path / "whole")
    assert torch.equal(C, checkpoint.read(tmp_path / "whole")[0].server.C)


def test_multi_krum_counts_whom_it_leaves_out(tmp_path: Path) -> None:
    train(load([*WORDS, "federation.aggregate=multi_krum"]), tmp_path / "run")
    dropped = json.loads((tmp_path / "run" / "result.json").read_text())["dropped"]
    reasons = [reason for said in dropped.values() for reason in said]
    assert set(reasons) == {"left out by federation.aggregate (MultiKrum)"}
    assert sum(sum(said.values()) for said in dropped.values()) == 6 * 2


def test_a_method_without_a_control_and_a_run_without_checkpoints(tmp_path: Path) -> None:
    for rule in ("trimmed_mean", "median", "multi_krum"):
        words = [*WORDS, f"federation.aggregate={rule}", "checkpoint.every=null"]
        in_process.run(load([*words, "algorithm=fedavg"]), tmp_path / f"{rule} fedavg")
        in_process.run(load(words), tmp_path / rule)
        assert not (tmp_path / rule / "controls").exists()


@pytest.mark.parametrize("attack", ["flip_3", "times_3", "little"])
def test_C_stays_that_of_the_rule_under_attack(attack: str, tmp_path: Path) -> None:
    """Of the honest clients: what attackers keep is their affair."""
    words = [*WORDS, "federation.aggregate=median", "algorithm.start=gradient"]
    train(load(words), tmp_path / "run", attack)
    standing = checkpoint.read(tmp_path / "run")[0]
    experiment = build(load(words))
    states = states_beside(tmp_path / "run", 8, experiment.clients.initial_state(), torch.device("cpu"))
    honest = torch.stack([states.load(i, standing.counted[i]).C for i in range(2, 8)])
    assert (honest.amin(0) - 1e-7 <= standing.server.C).all()
    assert (honest.amax(0) + 1e-7 >= standing.server.C).all()


def test_the_mean_is_the_papers_step() -> None:
    X = torch.randn(6)
    them = {i: good(torch.randn(6)) for i in range(3)}
    server = initial_server(METHODS["fedmuon"], X)
    standing = RunState(server, clients=range(5))
    after = Aggregation(Rule(), 0.7, 0.0).step(standing, CallId(1, 1), them)
    assert torch.equal(after.X, server_step(server, list(them.values()), 5, 0.7).X)


def test_C_is_watched() -> None:
    them = {i: good(torch.zeros(6)) for i in range(3)}
    assert bent(9.9 * them[0].dC, them, 10.0) is None
    assert bent(10.1 * them[0].dC, them, None) is None
    assert "is more than 10 times the round's median" in str(bent(10.1 * them[0].dC, them, 10.0))
