"""Two runs of a sweep side by side against one alone: rounds a second, LeNet on Fashion-MNIST with FedMuon.

python -m benchmarks.sweep [--repeats 3] [--rounds 60]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = ["dataset=fashion_mnist", "partition=iid", "engine.workers=0", "hydra/launcher=cores"]


def rounds_per_second(folder: Path, seeds: str, rounds: int) -> float:
    """Of all runs of one sweep together, over the second half of their rounds."""
    words = [
        *WORDS,
        f"rounds={rounds}",
        f"evaluation.every={rounds // 2}",
        f"seed={seeds}",
        f"hydra.sweep.dir={folder}",
    ]
    subprocess.run([sys.executable, "-m", "fedmuon_app", "-m", *words], check=True, stdout=subprocess.DEVNULL)
    total = 0.0
    for file in folder.glob("*/metrics.jsonl"):
        first, last = (json.loads(line) for line in file.read_text().splitlines())
        total += (last["round"] - first["round"]) / (last["seconds"] - first["seconds"])
    return total


def main() -> None:
    """Print the medians and the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    alone, together = [], []
    with tempfile.TemporaryDirectory() as base:
        for k in range(args.repeats):
            alone.append(rounds_per_second(Path(base) / f"{k}-one", "0", args.rounds))
            together.append(rounds_per_second(Path(base) / f"{k}-two", "0,1", args.rounds))
    print(f"one run {statistics.median(alone):.2f} rounds/s, two runs {statistics.median(together):.2f} rounds/s")
    ratio = statistics.median(b / a for a, b in zip(alone, together, strict=True))
    print(f"ratio {ratio:.2f} (wanted: at least 1.80)")


if __name__ == "__main__":
    main()
