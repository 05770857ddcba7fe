"""How much of a client's step is left of the clients' average: the directions of Muon point apart.

    python -m benchmarks.step_shrink [--rounds 50]

Fashion-MNIST, LeNet with GroupNorm, 16 clients, K = 5. After so many rounds every client takes a round from the same X;
the length of the matrices' part of the mean of m updates X_i - X over the mean length of one, for m of them at random.
"""

import argparse

import torch

from fedmuon_app.algorithms.aggregation import Rule
from fedmuon_app.algorithms.client import Update
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import one_by_one
from fedmuon_app.experiment import build
from fedmuon_app.federation.aggregation import Aggregation
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.loop import nonempty_clients
from fedmuon_app.federation.protocol import CallId
from fedmuon_app.federation.sampling import cohort
from fedmuon_app.federation.states import unnamed_states

AVERAGED = (1, 2, 4, 8, 11, 16)
DRAWS = 50


def lengths(method: str, beta: str, rounds: int) -> list[float]:
    """The shares of AVERAGED."""
    steps = {"fedavg": "algorithm.lr=0.1"}.get(method, "algorithm.lr=0.002 algorithm.vector_lr=0.02").split()
    words = ["experiment=paper/fashion_mnist", f"partition.beta={beta}", f"algorithm={method}", *steps]
    experiment = build(load([*words, "algorithm.outer_lr=2", "checkpoint.every=null"]))
    states = unnamed_states(16, experiment.clients.initial_state(), experiment.clients.objective.device)
    train, ids = one_by_one(experiment, states), nonempty_clients(experiment.sizes(), 8)
    standing = RunState(experiment.server, clients=ids)
    step = Aggregation(Rule(), 2.0, 0.0)
    for r in range(1, rounds + 1):
        call_id, sampled = CallId(1, r), standing.cohort(cohort(0, r, ids, 8))
        replies = train(call_id, sampled, standing.server.X, standing.server.C)
        good = {i: u for i, u in replies.items() if isinstance(u, Update)}
        standing = standing.after(r, step.step(standing, call_id, good), list(good))
    X, C = standing.server.X, standing.server.C
    layout = experiment.clients.objective.layout
    moved = []
    for update in train(CallId(1, rounds + 1), standing.cohort(ids), X, C).values():
        assert isinstance(update, Update)
        moved.append(torch.cat([v.flatten() for v in layout.views(update.X - X).values() if v.ndim >= 2]))
    rows = torch.stack(moved)
    one, draw = rows.norm(dim=1).mean(), torch.Generator().manual_seed(0)
    shares = []
    for m in AVERAGED:
        drawn = [torch.randperm(len(rows), generator=draw)[:m] for _ in range(DRAWS)]
        shares.append(float(torch.stack([rows[d].mean(0).norm() for d in drawn]).mean() / one))
    return shares


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    print("| | " + " | ".join(f"m = {m}" for m in AVERAGED) + " |")
    print("| --- |" + " --- |" * len(AVERAGED))
    for beta in ("0.1", "10"):
        for method in ("localmuon", "fedmuon", "fedavg"):
            print(
                f"| {method}, β = {beta} | " + " | ".join(f"{x:.2f}" for x in lengths(method, beta, rounds)) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
