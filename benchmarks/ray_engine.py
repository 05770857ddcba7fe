"""Seconds a round on Flower's Ray engine: this project's app, and one that is written as Flower's tutorials do.

python -m benchmarks.ray_engine [--repeats 3] [--large]

LeNet (n = 16, S = 8, K = 5, B = 64) on Fashion-MNIST with FedMuon; with --large, records of ResNet-18's size
and next to no computation. The two apps take call_ids on SuperLinks of their own. The first rounds, in which
actors start and load the data, are left out; ours holds one evaluation in its rounds, the plain app's none.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import tomli_w

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.simulation import follow, nodes, submit
from fedmuon_app.engines.superlink import stage_app, superlink

PLAIN = Path(__file__).parent / "flower_plain"
LARGE = [
    "model=custom",
    "model._target_=benchmarks.large_model.Large",
    "algorithm=fedavg",  # without the oracle, with FedMuon's control: the same records and state
    "algorithm.control=momentum",
    "local.steps=1",
    "local.batch_size=1",
    "dataset=digits",
]


def ours(folder: Path, overrides: list[str], rounds: int) -> float:
    """Mean seconds a round over the second half."""
    words = [*overrides, f"rounds={rounds}", f"evaluation.every={rounds // 2}", "partition=iid", f"run_dir={folder}"]
    config = load(words)
    if config.engine.name == "in_process":
        in_process.run(config, folder)
    else:
        folder.mkdir()
        with superlink(folder / "flower.log") as link, Progress(rounds, "ours") as progress:
            follow(link, submit(link, config, stage_app(folder / "app")), folder, progress)
    first, last = (json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").read_text().splitlines())
    return float(last - first) / (rounds - rounds // 2)


def plain(folder: Path, model: str, rounds: int) -> float:
    """Likewise, of the plain app."""
    os.environ["GLIBC_TUNABLES"] = ""  # nobody sets it for a tutorial's app
    folder.mkdir()
    out, config = folder / "seconds.json", folder / "config.toml"
    config.write_text(tomli_w.dumps({"rounds": rounds, "model": model, "out": str(out)}))
    with superlink(folder / "flower.log") as link:
        run_id = link.submit(PLAIN, config, nodes(16, cpus=1, gpus=0))
        while not out.exists():
            time.sleep(1)
            if not link.alive() or not (link.runs_something() or link.status(run_id)[0] == "running"):
                raise RuntimeError((folder / "flower.log").read_text()[-2000:])
    del os.environ["GLIBC_TUNABLES"]
    seconds = json.loads(out.read_text())
    return statistics.fmean(seconds[len(seconds) // 2 :])


def main() -> None:
    """Print the medians and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    rounds = args.rounds or (12 if args.large else 60)
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [root, os.environ.get("PYTHONPATH", "")]
    )  # for large_model and the plain app
    workload = LARGE if args.large else ["dataset=fashion_mnist"]
    arms: dict[str, list[float]] = {"plain Flower app": [], "ours on Ray": [], "ours in process, two workers": []}
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as base:
        for k in range(args.repeats):
            folder = Path(base) / str(k)
            folder.mkdir()
            arms["plain Flower app"].append(plain(folder / "plain", "resnet18" if args.large else "lenet", rounds))
            arms["ours on Ray"].append(ours(folder / "ray", [*workload, "engine=simulation"], rounds))
            alone = ours(folder / "alone", [*workload, "engine=in_process", "engine.workers=2"], rounds)
            arms["ours in process, two workers"].append(alone)
            print({name: f"{seconds[-1]:.3f} s" for name, seconds in arms.items()}, flush=True)
    for name, seconds in arms.items():
        ratio = statistics.median(s / p for s, p in zip(seconds, arms["plain Flower app"], strict=True))
        print(f"{name:30s} {statistics.median(seconds):.3f} s a round, {ratio:.2f} of the plain app's")


if __name__ == "__main__":
    main()
