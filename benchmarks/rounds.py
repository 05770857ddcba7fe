"""Seconds a round of LeNet (n = 16, S = 8, K = 5, B = 64): this project, pfl-research and plain loops, interleaved.

pip install pfl && python -m benchmarks.rounds [--blocks 7] [--rounds 6]

Each block plays a few rounds with each of them, one after the other; a ratio is taken within a block, and its
median over the blocks is what counts. Needs Fashion-MNIST.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable

import psutil
import torch

from benchmarks.one_round import rounds_of_job
from benchmarks.pfl_fedavg import Pfl
from benchmarks.plain import rounds_of
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import one_by_one
from fedmuon_app.engines.workers import Workers
from fedmuon_app.experiment import build
from fedmuon_app.federation.states import unnamed_states

WORKLOAD = ["dataset=fashion_mnist", "partition=iid"]  # iid: every client fills its batches

RATIOS = [
    ("FedAvg, one thread", "ours: FedAvg", "pfl: FedAvg", 0.77),
    ("FedMuon, one thread", "ours: FedMuon", "plain loop: FedMuon", 0.75),
    ("FedMuon, two workers over none", "ours: FedMuon, 2 workers", "ours: FedMuon", 1 / 1.6),
    ("FedMuon, one worker over none", "ours: FedMuon, 1 worker", "ours: FedMuon", 1.0),
]


def seconds(one_round: Callable[[], None], rounds: int) -> list[float]:
    """Of each of so many rounds."""
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        one_round()
        taken.append(time.perf_counter() - start)
    return taken


def main() -> None:
    """Print the medians, the ratios, and what the workers' engine costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    fedavg, fedmuon = (build(load([*WORKLOAD, f"algorithm={name}"])) for name in ("fedavg", "fedmuon"))
    torch.set_num_threads(1)
    S, K, B = fedmuon.plan.clients_per_round, fedmuon.clients.K, fedmuon.clients.batch_size
    examples = [fedmuon.clients.examples.at(part) for part in fedmuon.clients.parts]
    mean, std = fedmuon.data.mean[0], fedmuon.data.std[0]
    data = [((torch.as_tensor(e.inputs) / 255 - mean) / std, e.targets) for e in examples]
    with contextlib.ExitStack() as stack:
        arms: dict[str, Callable[[], None] | Pfl] = {
            "pfl: FedAvg": Pfl(data, S, K, B),
            "plain loop: FedAvg": rounds_of(data, S, K, B, muon=False),
            "plain loop: FedMuon": rounds_of(data, S, K, B, muon=True),
        }
        pools = {}
        for name, experiment, workers in (
            ("ours: FedAvg", fedavg, 0),
            ("ours: FedMuon", fedmuon, 0),
            ("ours: FedMuon, 1 worker", fedmuon, 1),
            ("ours: FedMuon, 2 workers", fedmuon, 2),
        ):
            states = unnamed_states(len(data), experiment.clients.initial_state(), torch.device("cpu"))
            if workers:
                pools[name] = stack.enter_context(Workers(experiment, states, workers, S))
            arms[name] = rounds_of_job(experiment, pools[name].train if workers else one_by_one(experiment, states))
        blocks: dict[str, list[float]] = {name: [] for name in arms}
        overheads = []
        for block in range(args.blocks + 1):
            for name, arm in arms.items():
                before = cpu_seconds()
                taken = arm.rounds(args.rounds) if isinstance(arm, Pfl) else seconds(arm, args.rounds)
                if block:  # the first one warms up
                    blocks[name].append(statistics.median(taken))
                    if name == "ours: FedMuon, 2 workers":
                        slowest = max(now - before.get(pid, 0.0) for pid, now in cpu_seconds().items())
                        overheads.append(1 - slowest / sum(taken))
    for name, medians in blocks.items():
        print(f"{name:28s} {statistics.median(medians):.3f} s a round")
    for title, ours, theirs, limit in RATIOS:
        ratio = statistics.median(a / b for a, b in zip(blocks[ours], blocks[theirs], strict=True))
        print(f"{title:32s} {ratio:.2f} (wanted: at most {limit:.2f})")
    print(
        f"two workers: wall minus the busier one's CPU time is {100 * statistics.median(overheads):.0f} % of the wall"
    )


def cpu_seconds() -> dict[int, float]:
    """CPU time of each child process so far."""
    return {p.pid: sum(p.cpu_times()[:2]) for p in psutil.Process().children()}


if __name__ == "__main__":
    main()
