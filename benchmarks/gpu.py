"""What docs/performance.md lacks, on one GPU in ten minutes: seconds and launches a round, and Newton-Schulz.

python -m benchmarks.gpu [--device cuda] [--rounds 5] [--models lenet resnet18_gn]

FedMuon (n = 16, S = 8, K = 5, B = 64) on random pictures of Fashion-MNIST's and CIFAR-10's shapes: nothing is needed on
disk. ``--device cpu`` runs the same code, for a trial. Prints Markdown tables.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.newton_schulz import ours, theirs
from benchmarks.one_round import rounds_of_job
from fedmuon_app.config import build_target, load
from fedmuon_app.data.examples import Data, Examples
from fedmuon_app.engines.in_process import one_by_one, room, stacked
from fedmuon_app.experiment import Experiment, build, model_of
from fedmuon_app.federation.resident import ResidentStates
from fedmuon_app.federation.states import ClientStates, unnamed_states

SHAPES = {"lenet": (1, 28, 28), "resnet18_gn": (3, 32, 32)}
ARMS = {
    "one after the other": [],
    "states in a file": ["engine.states=host"],
    "stacked": ["engine.stacked=true"],
    "bfloat16": ["compute=bfloat16", "algorithm.lmo.dtype=bfloat16"],
    "stacked, bfloat16": ["engine.stacked=true", "compute=bfloat16", "algorithm.lmo.dtype=bfloat16"],
}


def pictures(shape: tuple[int, ...]) -> Data:
    """Random ones: 2,000 to train on, 250 to test on, of ten classes."""
    draw = torch.Generator().manual_seed(0)
    parts: list[Examples] = []
    for count in (2000, 250):
        pixels = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=draw)
        parts.append(Examples(pixels, torch.randint(0, 10, (count,), generator=draw)))
    channels = shape[0]
    train, test = parts
    return Data(train, test, [str(i) for i in range(10)], [0.5] * channels, [0.25] * channels)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median seconds, after one that warms up."""
    taken = []
    for _ in range(repeats + 1):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


def launches(work: Callable[[], Any], device: torch.device) -> int:
    """Kernels that the host launches; on a CPU, operations."""
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as seen:
        work()
        wait(device)
    wanted = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC") if cuda else ("aten::",)
    return sum(one.count for one in seen.key_averages() if one.key.startswith(wanted))


def round_of(model: str, device: str, words: list[str]) -> tuple[Callable[[], None], Experiment]:
    """One round of the engine."""
    c = load([f"model={model}", f"device={device}", "partition=iid", "engine.workers=0", "dataset=digits", *words])
    data = pictures(SHAPES[model])
    parts = [torch.arange(i, 2000, 16).numpy() for i in range(16)]
    experiment = build(c, given=(data, parts, lambda: build_target("model", model_of(c, data))))
    clients = experiment.clients
    like, where = clients.initial_state(), clients.objective.device
    states: ClientStates = unnamed_states(len(parts), like, where)
    if "engine.states=host" not in words:
        states = ResidentStates(states, room(where))
    engine = stacked(experiment, states, c.engine.stack_memory) if c.engine.stacked else one_by_one(experiment, states)
    return rounds_of_job(experiment, engine), experiment


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(SHAPES))
    args = parser.parse_args()
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}\n")
    print("| model | | s a round | ratio | launches a round |\n| --- | --- | --- | --- | --- |")
    for model in args.models:
        first = 0.0
        for arm, words in ARMS.items():
            one_round, _ = round_of(model, args.device, words)
            seconds = timed(one_round, device, args.rounds)
            first = first or seconds
            row = model, arm, f"{seconds:.4f}", f"{seconds / first:.2f}", str(launches(one_round, device))
            print(f"| {' | '.join(row)} |", flush=True)
    print("\n| Newton-Schulz, T = 5, all matrices | ms | ratio |\n| --- | --- | --- |")
    for model in args.models:
        _, experiment = round_of(model, args.device, [])
        layout = experiment.clients.objective.layout
        matrices = [torch.randn(shape[0], shape.numel() // shape[0], device=device) for shape in layout.matrix_shapes]
        first = 0.0
        routines: dict[str, Callable[[], Any]] = {
            "torch.optim.Muon's (bfloat16)": functools.partial(theirs, matrices),
            "ours, float32": functools.partial(ours, matrices),
            "ours, bfloat16": functools.partial(ours, [G.bfloat16() for G in matrices]),
        }
        for routine, work in routines.items():
            seconds = timed(work, device, 20)
            first = first or seconds
            print(f"| {model}: {routine} | {1e3 * seconds:.2f} | {seconds / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
