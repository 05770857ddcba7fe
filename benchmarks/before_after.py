"""Seconds of the same runs with two checkouts of this project, one after the other in each block: did a change cost anything?

python -m benchmarks.before_after OLDER_CHECKOUT [--blocks 7]

The seconds are those of result.json, from the first round on, without start-up. A ratio is taken within a block, and its
median over the blocks counts. The machine should have nothing else to do.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
SHARED = ["checkpoint.every=null", "evaluation.every=1000"]
RUNS = {
    "FedMuon, LeNet": ["algorithm=fedmuon", "rounds=60", "engine.workers=0"],
    "FedMuon, LeNet, two workers": ["algorithm=fedmuon", "rounds=120", "engine.workers=2"],
    "FedAvg, LeNet": ["algorithm=fedavg", "rounds=60", "engine.workers=0"],
    "SCAFFOLD (Adam), LeNet": ["algorithm=scaffold_adam", "rounds=60", "engine.workers=0"],
    "FedMuon, ResNet-18's size": ["model=resnet18_gn", "rounds=2", "local.batch_size=2", "federation.clients_per_round=2",
                                  "algorithm=fedmuon", "engine.workers=0"],
    "FedMuon, 1,400 clients": ["algorithm=fedmuon", "rounds=10", "engine.workers=0", "partition=iid", "local.batch_size=1",
                               "federation.num_clients=1400", "federation.clients_per_round=100"],
    "FedMuon on Ray": ["algorithm=fedmuon", "rounds=30", "engine=simulation"],
}  # fmt: skip


def seconds(checkout: Path, words: list[str]) -> float:
    """Of a run with that checkout."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        command = [sys.executable, "-m", "fedmuon_app", *SHARED, *words, f"hydra.run.dir={folder}"]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
        return float(json.loads((folder / "result.json").read_text())["seconds"])


def main() -> None:
    """Print for each run the medians and the ratio of neighbours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print(f"{'run':<30} {'before, s':>10} {'after, s':>10} {'ratio':>7}  ratios")
    for name, words in RUNS.items():
        if args.only not in name:
            continue
        pairs = [(seconds(args.before.absolute(), words), seconds(HERE, words)) for _ in range(args.blocks)]
        before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [b / a for a, b in pairs]
        print(f"{name:<30} {before:>10.2f} {after:>10.2f} {statistics.median(ratios):>7.3f}  "
              f"{', '.join(f'{x:.2f}' for x in sorted(ratios))}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
