"""What a sampled client costs in a federation of 10,000 beside one of 16, and what it takes to set up.

python -m benchmarks.many_clients [--rounds 20]

Equal work for a client in both: n = 10,000 has six examples of Fashion-MNIST each, so B = 6. Each federation is a
process of its own, one after the other, three times.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

from fedmuon_app.algorithms.server import server_step
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import one_by_one
from fedmuon_app.experiment import build
from fedmuon_app.federation.loop import nonempty_clients
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.federation.sampling import cohort
from fedmuon_app.federation.states import unnamed_states


def measure(n: int, S: int, rounds: int) -> dict[str, float]:
    """Seconds to set up, median milliseconds a sampled client, and the most memory."""
    start = time.perf_counter()
    words = [f"federation.num_clients={n}", f"federation.clients_per_round={S}", f"seed={time.time_ns() % 2**31}"]
    experiment = build(load([*words, "dataset=fashion_mnist", "partition=iid", "local.batch_size=6"]))
    clients, ids, server = experiment.clients, nonempty_clients(experiment.sizes(), S), experiment.server
    states = unnamed_states(n, clients.initial_state(), clients.objective.device)
    train, taken, set_up = one_by_one(experiment, states), [], time.perf_counter() - start
    counted = dict.fromkeys(ids, Acknowledged())
    for r in range(1, rounds + 1):
        begin = time.perf_counter()
        sampled = cohort(experiment.plan.seed, r, ids, S)
        replies = train(CallId(1, r), {i: counted[i] for i in sampled}, server.X, server.C)
        server = server_step(server, [replies[i] for i in sampled], n)
        counted |= dict.fromkeys(sampled, Acknowledged(CallId(1, r)))
        taken.append((time.perf_counter() - begin) / S)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"set up, s": set_up, "a sampled client, ms": 1e3 * statistics.median(taken), "peak memory, GiB": peak}


def main() -> None:
    """Print both, and the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", type=int, nargs=2, metavar=("N", "S"))
    args = parser.parse_args()
    if args.only:
        n, S = args.only
        print(json.dumps(measure(n, S, args.rounds)))
        return
    ratios = []
    for _ in range(3):
        cost = {}
        for n, S, rounds in ((16, 8, 10 * args.rounds), (10_000, 100, args.rounds)):
            command = [
                sys.executable,
                "-m",
                "benchmarks.many_clients",
                "--only",
                str(n),
                str(S),
                "--rounds",
                str(rounds),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(f"n = {n}: " + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()), flush=True)
            cost[n] = figures["a sampled client, ms"]
        ratios.append(cost[10_000] / cost[16])
    print(f"a sampled client at n = 10,000 over one at n = 16: {statistics.median(ratios):.2f} (wanted: at most 1.20)")


if __name__ == "__main__":
    main()
