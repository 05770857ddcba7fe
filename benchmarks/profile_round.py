"""Where a round of FedMuon goes (LeNet, n = 16, S = 8, K = 5, B = 64, one thread), and how far each part is from its floor.

python -m benchmarks.profile_round

The floor is the larger of its multiplications over this core's measured peak and its bytes over the measured bandwidth.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedmuon_app.algorithms.client import Update, local_round
from fedmuon_app.algorithms.newton_schulz import newton_schulz
from fedmuon_app.algorithms.server import server_step
from fedmuon_app.algorithms.steps import Muon
from fedmuon_app.config import load
from fedmuon_app.experiment import build


def milliseconds(work: Callable[[], object], repeats: int = 40) -> float:
    """The median of the time that it takes."""
    taken = []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken[3:])


def flops(work: Callable[[], object]) -> int:
    """Of its products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def main() -> None:
    """Print a line for each part."""
    experiment = build(load(["dataset=fashion_mnist", "partition=iid"]))
    clients, objective = experiment.clients, experiment.clients.objective
    X, C, layout, state = experiment.server.X, experiment.server.C, objective.layout, experiment.clients.initial_state()
    A = torch.randn(768, 768)
    peak = 2 * 768**3 / milliseconds(lambda: A @ A) * 1e3
    large = torch.randn(2**24)
    other = torch.empty_like(large)
    bandwidth = 2 * 4 * 2**24 / milliseconds(lambda: other.copy_(large)) * 1e3
    print(f"peak {peak / 1e9:.0f} GFLOP/s (torch.mm, 768³), bandwidth {bandwidth / 1e9:.1f} GB/s (copy of 64 MiB)\n")
    batches = clients.minibatches(0, 0, clients.K)
    gradient = objective.gradient(X, batches[0])
    matrices = [x.reshape(1, len(x), -1) for w, x in layout.views(gradient[1]).items() if w in layout.matrices]
    update = Update(X, C, 0.0)
    steps = experiment.plan.clients_per_round * clients.K

    method = replace(clients.method, matrix_step=Muon(T=0))

    def without_products() -> object:
        return local_round(method, clients.hp, layout, lambda X, batch: gradient, X, C, state, batches)

    def orthogonalise() -> object:
        return [newton_schulz(G, 5) for G in matrices]

    rows: list[tuple[str, int, Callable[[], object], int]] = [
        ("minibatches", experiment.plan.clients_per_round, lambda: clients.minibatches(0, 0, clients.K), 0),
        ("gradient", steps, lambda: objective.gradient(X, batches[0]), 0),
        ("Newton-Schulz, T = 5", steps, orthogonalise, 0),
        (
            "momentum, correction, step",
            experiment.plan.clients_per_round,
            without_products,
            clients.K * 12 * 4 * len(X),
        ),
        ("server's step", 1, lambda: server_step(experiment.server, [update] * 8, 16), 8 * 2 * 4 * len(X)),
        ("test of 10,000 images", 0, lambda: experiment.evaluate(X), 0),
    ]
    print("| part | times a round | ms each | ms a round | MFLOP each | floor, ms each | share of the floor |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, times, work, traffic in rows:
        each, count = milliseconds(work, 5 if "test" in name else 40), flops(work)
        floor = 1e3 * max(count / peak, traffic / bandwidth)
        print(
            f"| {name} | {times} | {each:.2f} | {times * each:.0f} | {count / 1e6:.1f} | {floor:.2f} | {floor / each:.2f} |"
        )


if __name__ == "__main__":
    main()
