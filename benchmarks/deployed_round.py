"""Seconds a deployed round, with TLS on loopback: this project's exchange, and Flower's own clock.

python -m benchmarks.deployed_round [--rounds 8] [--nodes 2]

Both arms run on one SuperLink with the same SuperNodes, in call_ids: digits, LeNet, FedMuon, one client a node, K = 1.
"Before" is the same app in Flower's loop, which looks for replies every 3 s, with a client that imports
scikit-learn for its digits, as loading them by scikit-learn's function does.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

from fedmuon_app.config import load
from fedmuon_app.engines.deployment import follow, lines_of
from fedmuon_app.engines.flwr import run_config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.superlink import stage_app
from tests.deployment.cluster import Cluster, cluster

BEFORE = '''
"""The same app in Flower's loop."""
from flwr.serverapp.strategy import Strategy
from fedmuon_app.federation.runlog import Evaluation
from fedmuon_app.flower import server_app, strategy

class Before(strategy.FedMuonStrategy):
    def start(self, grid, initial_arrays, num_rounds=3, timeout=3600, *args):
        self._standing = self._runlog.begin(self.server, 0, num_rounds)
        return Strategy.start(self, grid, initial_arrays, num_rounds, timeout)

    def aggregate_train(self, server_round, replies):
        done = super().aggregate_train(server_round, replies)
        self._runlog.round(server_round, [], Evaluation(server_round, 0.0, 0.0, None))
        return done

server_app.FedMuonStrategy = Before
app = server_app.app
'''
CLIENT = "from sklearn.datasets import load_digits\nfrom fedmuon_app.flower import client_app\napp = client_app.app\n"


def seconds(c: Cluster, name: str, rounds: int, before: bool) -> list[float]:
    """Of each round but the first."""
    app, run = stage_app(c.folder / name / "app"), c.folder / name / "run"
    if before:
        (app / "before.py").write_text(BEFORE)
        (app / "before_client.py").write_text(CLIENT)
        project = (app / "pyproject.toml").read_text()
        project = project.replace("fedmuon_app.flower.server_app:app", "before:app")
        (app / "pyproject.toml").write_text(project.replace("fedmuon_app.flower.client_app:app", "before_client:app"))
    size = f"federation.num_clients={c.count}", f"federation.clients_per_round={c.count}"
    words = [*size, f"rounds={rounds}", "evaluation.every=1", "local.steps=1", f"run_dir={run}", "engine=deployment"]
    log = c.flwr.log(c.flwr.submit(app, run_config(app.parent, load(words))))
    with Progress(rounds, name) as progress:
        if error := follow(lines_of(log), progress):
            raise RuntimeError(error)
    ends = [json.loads(line)["seconds"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [b - a for a, b in itertools.pairwise(ends)]


def main() -> None:
    """Print the medians and the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    taken: dict[str, list[float]] = {"before": [], "ours": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, cluster(Path(folder), args.nodes) as c:
        for k in range(args.repeats):
            for name, all_seconds in taken.items():
                all_seconds += seconds(c, f"{name}-{k}", args.rounds, name == "before")
    for name, all_seconds in taken.items():
        print(f"{name:8s} median {statistics.median(all_seconds):.1f} s a round, of {len(all_seconds)}")
    print(f"ratio    {statistics.median(taken['ours']) / statistics.median(taken['before']):.2f}")


if __name__ == "__main__":
    main()
