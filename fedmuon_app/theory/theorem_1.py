"""Theorem 1: LocalMuon, and MuLoCo, stand still where clients' LMOs cancel; FedMuon reaches the optimum.

f_1(X) = ½‖X‖² and f_2(X) = ½‖X + aU‖² with a U of orthonormal columns (the paper's case is U = 1), from X = -aU/4:
the gradients are -aU/4 and 3aU/4, their LMOs U and -U, whatever α and η. The optimum is -aU/2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedmuon_app.algorithms.methods import METHODS, Hyper
from fedmuon_app.algorithms.steps import Muon
from fedmuon_app.theory.game import ToyFederation

ETA, ALPHA, ROUNDS = 2.0**-6, 0.5, 250
OUTER = {"muloco": (0.7, 0.6)}  # η_s and μ
A = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Path:
    """One method on one pair of functions.

    Attributes:
        method: its name.
        a: distance between the functions' minima.
        shape: of X.
        distances: ‖X^(r) - X*‖_sp for r = 0, 1, ….
    """

    method: str
    a: float
    shape: tuple[int, int]
    distances: list[float]


def walk(
    method: str,
    a: float,
    U: Tensor,
    rounds: int = ROUNDS,
    alpha: float = ALPHA,
    norm: str = "spectral",
    eta: float = ETA,
) -> list[Tensor]:
    """X^(0), X^(1), … of ``method``.

    Args:
        method: a name of METHODS.
        a: distance of the minima. Where it and eta are powers of two, LocalMuon's cancellation is exact.
        U: float64[d1, d2] with orthonormal columns.
        rounds: R; one local step in each, both clients sampled.
        alpha: α.
        norm: of the LMO.
        eta: η.
    """
    outer_lr, outer_momentum = OUTER.get(method, (1.0, 0.0))
    row, hp = METHODS[method], Hyper(eta, eta, alpha=alpha)
    if isinstance(row.matrix_step, Muon):
        row = replace(row, matrix_step=Muon(norm=norm, scale="one", T=None))
    gradients = [lambda X, step: X, lambda X, step: X + a * U]
    game = ToyFederation(row, hp, gradients, -a / 4 * U, outer_lr=outer_lr, outer_momentum=outer_momentum)
    path = [game.x]
    for _ in range(rounds):
        game.round([0, 1])
        path.append(game.x)
    return path


def measure(rounds: int = ROUNDS) -> list[Path]:
    """Every method on the paper's line and on 6 × 4 matrices, for several a."""
    line = torch.ones(1, 1, dtype=torch.float64)
    matrices = torch.linalg.qr(torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    paths = []
    for U in (line, matrices):
        for method in ("localmuon", "muloco", "fedmuon"):
            for a in A:
                walked = walk(method, a, U, rounds)
                distances = [float(torch.linalg.matrix_norm(X + a / 2 * U, ord=2)) for X in walked]
                paths.append(Path(method, a, (U.shape[0], U.shape[1]), distances))
    return paths


def table(paths: Sequence[Path]) -> list[dict[str, object]]:
    """The distances at the start and at the end."""
    return [
        {
            "method": p.method,
            "X": f"{p.shape[0]} × {p.shape[1]}",
            "a": p.a,
            "start": p.distances[0],
            "end": p.distances[-1],
        }
        for p in paths
    ]


def draw(paths: Sequence[Path]) -> Figure:
    """‖X - X*‖ against rounds, and at the end against a."""
    colours = {"localmuon": "#0072B2", "muloco": "#CC79A7", "fedmuon": "#D55E00"}
    styles = {"localmuon": "-", "muloco": "--", "fedmuon": "-"}
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    matrices = [p for p in paths if p.shape != (1, 1)]
    for p in matrices:
        if p.a == A[-1]:
            left.plot(p.distances, styles[p.method], color=colours[p.method], label=p.method)
    for method in colours:
        ends = [(p.a, p.distances[-1]) for p in matrices if p.method == method]
        right.plot(*zip(*ends, strict=True), styles[method], color=colours[method], marker="o", label=method)
    left.set(xlabel="round", ylabel="‖X - X*‖", title=f"6 × 4 matrices, a = {A[-1]:g}")
    right.set(
        xlabel="a, the distance of the clients' minima",
        ylabel=f"‖X - X*‖ after {ROUNDS} rounds",
        title="the bias grows with a",
    )
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure
