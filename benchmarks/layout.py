"""What channels-last pixels are worth: LeNet's gradient with and without them, interleaved on one thread.

python benchmarks/layout.py
"""

import statistics
import time

import numpy as np
import torch
from torch import Tensor

from fedmuon_app.data import sources
from fedmuon_app.models.lenet import LeNet
from fedmuon_app.objective import Objective
from fedmuon_app.tasks.classification import Classification
from fedmuon_app.tasks.inputs import Pixels

STEPS, WARM_UP, B = 200, 20, 64


class Contiguous(Pixels):
    """The same, with pixels as torch lays them out by itself."""

    def __call__(self, raw: Tensor) -> Tensor:
        """As contiguous tensors are."""
        pixels = super().__call__(raw)
        return torch.empty(pixels.shape).copy_(pixels)


def main() -> None:
    """Print the median step of each, and the median of the ratios of neighbours."""
    torch.set_num_threads(1)
    data = sources.digits()
    batch = data.train.at(np.arange(B))
    cpu = torch.device("cpu")
    forms = [kind(data.mean, data.std, "none", torch.float32, cpu) for kind in (Contiguous, Pixels)]
    objectives = [Objective(LeNet, 0, cpu, Classification(), lambda dtype, form=form: form) for form in forms]
    X = objectives[0].X0()
    seconds = []
    for _ in range(WARM_UP + STEPS):
        pair = []
        for objective in objectives:
            start = time.perf_counter()
            objective.gradient(X, batch)
            pair.append(time.perf_counter() - start)
        seconds.append(pair)
    plain, last = zip(*seconds[WARM_UP:], strict=True)
    ratio = statistics.median(b / a for a, b in seconds[WARM_UP:])
    print(f"plain {1e3 * statistics.median(plain):.2f} ms  channels last {1e3 * statistics.median(last):.2f} ms")
    print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
