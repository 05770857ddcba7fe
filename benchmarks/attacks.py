"""What clients that mean no good do to FedMuon under each rule of aggregation: accuracy by rule and attack.

    python -m benchmarks.attacks DIR [--lanes 2]     trains what is missing in DIR (300 rounds each), prints the table

Fashion-MNIST, 16 clients, 8 a round, ``experiment=paper/budget`` at FedMuon's steps of its eight tries, seed 0. The
attackers are clients 0, 1, …; each has trained as it should and then sends something else, every time it is asked.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import one_by_one
from fedmuon_app.experiment import build, header, keeping
from fedmuon_app.federation.loop import TrainClients, nonempty_clients, run_rounds
from fedmuon_app.federation.protocol import CallId, Cohort, Replies
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.states import unnamed_states

Z = 1.5  # standard deviations of "a little is enough" (Baruch et al. 2019)
RULES = ("mean", "multi_krum", "trimmed_mean", "median")

Attack = Callable[[Update, Tensor, list[Update]], Update]
"""(the attacker's honest update, X, the honest clients' updates) ↦ what it sends."""


def scaled(factor: float) -> Attack:
    """Both updates times a factor."""
    return lambda own, X, honest: Update(X + factor * (own.X - X), factor * own.dC, own.loss)


def little(own: Update, X: Tensor, honest: list[Update]) -> Update:
    """The honest clients' mean less Z standard deviations, in every coordinate: it knows them all."""
    deltas, dCs = torch.stack([u.X - X for u in honest]), torch.stack([u.dC for u in honest])
    return Update(X + deltas.mean(0) - Z * deltas.std(0), dCs.mean(0) - Z * dCs.std(0), own.loss)


ATTACKS: dict[str, Attack] = {"flip": scaled(-1.0), "times_3": scaled(3.0), "flip_3": scaled(-3.0), "little": little}


def attacked(train: TrainClients, attack: Attack, attackers: int) -> TrainClients:
    """The engine ``train``, whose clients below ``attackers`` send what ``attack`` makes of their updates."""

    def train_clients(call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor) -> Replies:
        replies = train(call_id, cohort, X, C)
        honest = [u for i, u in replies.items() if i >= attackers and isinstance(u, Update)]
        if len(honest) < 2:
            return replies
        return {i: attack(u, X, honest) if i < attackers and isinstance(u, Update) else u for i, u in replies.items()}

    return train_clients


def one(folder: Path, beta: str, rule: str, name: str, attackers: int, rounds: int) -> None:
    """A run, in its folder."""
    c = load([
        "experiment=paper/budget", "algorithm=fedmuon", "algorithm.lr=0.004", "algorithm.vector_lr=0.04",
        f"rounds={rounds}", f"partition.beta={beta}", "evaluation.every=10", f"federation.aggregate={rule}",
        f"federation.byzantine={3 if attackers > 2 else 2}", "federation.norm_bound=10", "checkpoint.every=null",
    ])  # fmt: skip
    experiment = build(c)
    states = unnamed_states(
        len(experiment.clients.parts), experiment.clients.initial_state(), experiment.clients.objective.device
    )
    train = one_by_one(experiment, states)
    if name != "none":
        train = attacked(train, ATTACKS[name], attackers)
    runlog = RunLog(folder, header(c, experiment), keeping=keeping(c))
    ids = nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round)
    server = run_rounds(experiment.plan, ids, experiment.server, train, experiment.evaluate, runlog)
    runlog.finish(experiment.model(server.X), experiment.about_model(c))


def main() -> None:
    """Train what is missing, side by side, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--one", nargs=4, metavar=("BETA", "RULE", "ATTACK", "ATTACKERS"), help="train one run alone")
    args = parser.parse_args()
    if args.one:
        beta, rule, name, attackers = args.one
        return one(args.folder, beta, rule, name, int(attackers), args.rounds)
    names = ("none", *ATTACKS)
    cells = [(b, r, a, 2 if a != "none" else 0) for b in ("0.1", "10") for r in RULES for a in names]
    cells += [(b, r, a, 4) for b in ("0.1", "10") for r in RULES[1:] for a in ("flip_3", "little")]

    def train(cell: tuple[str, str, str, int]) -> None:
        folder = args.folder / "_".join(map(str, cell))
        if not (folder / "result.json").exists():
            command = [
                sys.executable,
                "-m",
                "benchmarks.attacks",
                str(folder),
                "--rounds",
                str(args.rounds),
                "--one",
                *map(str, cell),
            ]
            subprocess.run(command, check=False, capture_output=True)

    with ThreadPoolExecutor(args.lanes) as pool:
        list(pool.map(train, cells))
    table = csv.writer(sys.stdout)
    table.writerow(["beta", "rule", "attack", "attackers", "accuracy", "dropped_honest", "dropped_attackers"])
    for cell in cells:
        table.writerow([*cell, *figures(args.folder / "_".join(map(str, cell)), cell[3])])
    return None


def figures(folder: Path, attackers: int) -> list[object]:
    """Mean of the last five evaluations, and the share of replies dropped of honest clients and of attackers."""
    if not (folder / "result.json").exists():
        return ["diverged", "", ""]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-5:]
    cohorts = [json.loads(line)["clients"] for line in (folder / "cohorts.jsonl").read_text().splitlines()]
    dropped: Mapping[str, Mapping[str, int]] = json.loads((folder / "result.json").read_text())["dropped"]
    asked = [sum((i < attackers) == hostile for ids in cohorts for i in ids) for hostile in (False, True)]
    lost = [
        sum(sum(d.values()) for i, d in dropped.items() if (int(i) < attackers) == hostile) for hostile in (False, True)
    ]
    accuracy = sum(line["test_accuracy"] for line in lines) / len(lines)
    return [round(accuracy, 4), *(round(x / n, 3) if n else "" for x, n in zip(lost, asked, strict=True))]


if __name__ == "__main__":
    main()
