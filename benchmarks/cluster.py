"""Rounds a second on a Ray cluster of 1, 2 and 4 machines of half a core each, and what their network carries.

python -m benchmarks.cluster [--machines 1 2 4] [--rounds 12] [--blocks 2]    (as root on Linux: namespaces, cgroups)

FedMuon (n = 16, S = 8, B = 64), LeNet with K = 5 on Fashion-MNIST, and records of ResNet-18's size with next to no
computation. The driver is a machine of its own, without a limit. States go through the shared folder, which is a
local disk here: their bytes are said apart. The first half of the rounds, in which actors start, is left out.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.ray_engine import LARGE
from tests.deployment.machines import machines
from tests.deployment.ray_cluster import HEAD, SHARED, RayCluster

SHARE = 0.5  # of a core, that a machine has
WORKLOADS = {"LeNet": ["dataset=fashion_mnist"], "ResNet-18's size": LARGE}


@contextmanager
def half_a_core(name: str) -> Iterator[Path]:
    """A control group (version 1 or 2) whose processes have SHARE of a core together."""
    first = Path("/sys/fs/cgroup/cpu")
    root = first if first.is_dir() else first.parent
    group = root / f"fedmuon-{name}"
    group.mkdir()
    period = 100_000  # microseconds
    try:
        if root == first:
            (group / "cpu.cfs_quota_us").write_text(str(round(SHARE * period)))
        else:
            (group / "cpu.max").write_text(f"{round(SHARE * period)} {period}")
        yield group
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(process)
        group.rmdir()


def carried(cluster: RayCluster) -> int:
    """Bytes that the head has sent and received so far."""
    (link,) = json.loads(cluster.machines["head"].run("ip -json -statistics link show switch").stdout)
    return sum(int(link["stats64"][way]["bytes"]) for way in ("rx", "tx"))


def measure(count: int, name: str, rounds: int) -> tuple[float, float, float]:
    """Seconds a round, and MB a round that the driver's network carries and that states are."""
    names = [f"m{i}" for i in range(count)]
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as base, ExitStack() as stack:
        found = stack.enter_context(machines(Path(base), ["head", *names], {}))
        groups = {name: stack.enter_context(half_a_core(name)) for name in names}
        cluster = RayCluster(found, Path(base), groups)
        before = carried(cluster)
        words = [*WORKLOADS[name], f"rounds={rounds}", f"evaluation.every={rounds // 2}", "partition=iid"]
        words += ["engine=simulation", f"engine.ray={HEAD}", f"engine.shared={SHARED}", "hydra.run.dir=/tmp/run"]
        code, said = cluster.fedmuon(*words, seconds=1200)
        if code:
            raise RuntimeError(said)
        sent = carried(cluster) - before
        lines = (cluster.run_folder("run") / "metrics.jsonl").read_text().splitlines()
        first, last = (json.loads(line)["seconds"] for line in lines)
        states = list((Path(base) / "shared" / "states").rglob("*.safetensors"))
        state = statistics.mean(file.stat().st_size for file in states)
        for machine in found.values():
            machine.stop()
        return (last - first) / (rounds - rounds // 2), sent / rounds / 1e6, 2 * 8 * state / 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--blocks", type=int, default=2)
    args = parser.parse_args()
    for name in WORKLOADS:
        found: dict[int, list[tuple[float, float, float]]] = {count: [] for count in args.machines}
        for _ in range(args.blocks):
            for count in args.machines:
                found[count].append(measure(count, name, args.rounds))
                print(f"{name}, {count} machines: {found[count][-1]}", flush=True)
        for count, measured in found.items():
            seconds, network, states = (statistics.median(column) for column in zip(*measured, strict=True))
            first = statistics.median(s for s, _, _ in found[args.machines[0]])
            print(
                f"{name:17s} {count} machines: {1 / seconds:.2f} rounds/s ({first / seconds:.2f} times {args.machines[0]}'s), "
                f"network {network:.1f} MB a round, states {states:.1f} MB a round"
            )


if __name__ == "__main__":
    main()
