"""Newton-Schulz of all matrices of a model: this project's, the plain float32 loop, and torch.optim.Muon's (bfloat16).

python -m benchmarks.newton_schulz [--repeats 7]

One thread, T = 5, Gaussian input; also each one's error against Algorithm 2 in float64.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor
from torch.optim._muon import _zeropower_via_newtonschulz

from benchmarks.plain import newton_schulz as plain
from fedmuon_app.algorithms.newton_schulz import QUINTIC, newton_schulz
from fedmuon_app.models.lenet import LeNet
from fedmuon_app.models.resnet import resnet18_gn

T = 5


def ours(matrices: list[Tensor]) -> list[Tensor]:
    """As :func:`fedmuon_app.algorithms.steps.muon` has it: one stack a shape."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for G in matrices:
        by_shape.setdefault(G.shape, []).append(G)
    return [X for same in by_shape.values() for X in newton_schulz(torch.stack(same), T)]


def theirs(matrices: list[Tensor]) -> list[Tensor]:
    """One after the other, as torch.optim.Muon has it."""
    return [_zeropower_via_newtonschulz(G, QUINTIC, T, 1e-7) for G in matrices]


ROUTINES = {
    "plain float32 loop": lambda matrices: [plain(G, T) for G in matrices],
    "torch.optim.Muon (bfloat16)": theirs,
    "ours": ours,
}


def error(name: str, G: Tensor) -> float:
    """Relative to Algorithm 2 in float64."""
    exact = plain(G.double(), T)
    return float((ROUTINES[name]([G])[0].double() - exact).norm() / exact.norm())


def main() -> None:
    """Print a line a routine for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for model in (LeNet(), resnet18_gn()):
        matrices = [torch.randn(len(p), p[0].numel()) for p in model.parameters() if p.ndim > 1]
        seconds: dict[str, list[float]] = {name: [] for name in ROUTINES}
        for _ in range(args.repeats + 1):
            for name, routine in ROUTINES.items():
                start = time.perf_counter()
                routine(matrices)
                seconds[name].append(time.perf_counter() - start)
        print(type(model).__name__)
        for name, taken in seconds.items():
            ratio = statistics.median(a / b for a, b in zip(taken[1:], seconds["plain float32 loop"][1:], strict=True))
            worst = max(error(name, G) for G in matrices)
            print(f"  {name:28s} {1e3 * statistics.median(taken[1:]):8.2f} ms  ratio {ratio:.2f}  error {worst:.0e}")


if __name__ == "__main__":
    main()
