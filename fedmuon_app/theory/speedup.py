"""The speed-up with n: the first term of Theorem 2, (L r_0 σ² / (nRK))^(1/4), depends on nR alone.

n clients with the same f(X) = ½‖X‖² and gradients with noise, all sampled, α and η as the theorem chooses them (up to
constants) for each n and R: where noise dominates, the mean ‖∇f‖_trace of a run is the same for the same nR.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedmuon_app.algorithms.client import local_steps
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.methods import METHODS, Hyper
from fedmuon_app.algorithms.steps import Muon

D, SIGMA = 2, 1.0  # X is D × D, X^(0) = I; σ of each entry of a gradient
CLIENTS, TOTAL = (1, 4, 16), tuple(2**k for k in range(8, 14))
MOST = 2048  # rounds of one run


@dataclass(frozen=True)
class Run:
    """n clients for R rounds: the mean over the rounds of ‖∇f(X^(r))‖_trace."""

    n: int
    R: int
    mean_norm: float


def play(n: int, R: int, seed: int = 0) -> float:
    """The mean of ‖∇f(X^(r))‖_trace, r < R, of FedMuon with K = 1; clients batched, since they are alike."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.eye(D, dtype=torch.float64).flatten()
    layout = Layout.of({"w": X.view(D, D)})
    method = replace(METHODS["fedmuon"], matrix_step=Muon(T=10, scale="one"))
    r_0 = 0.5 * float(X @ X)
    alpha = min(1.0, math.sqrt(n * r_0 / (R * SIGMA**2 * D)))
    hp = Hyper(lr=(eta := math.sqrt(alpha * r_0 / R) / D**0.5), vector_lr=eta, alpha=alpha)
    M = X + SIGMA * torch.randn(n, D * D, generator=draw, dtype=torch.float64)  # Theorem 2's start
    C = M.mean(0)

    def gradient(at: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return at.new_zeros(()), at + noise

    def step(M_i: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        X_i, M_next, *_ = local_steps(method, hp, layout, gradient, X, C, (M_i, M_i, {}), 0, [noise])
        return X_i, M_next

    total = 0.0
    for _ in range(R):
        total += float(torch.linalg.matrix_norm(X.view(D, D), ord="nuc"))
        noise = SIGMA * torch.randn(n, D * D, generator=draw, dtype=torch.float64)
        X_i, M = torch.vmap(step)(M, noise)
        X, C = X_i.mean(0), M.mean(0)
    return total / R


def measure(totals: Sequence[int] = TOTAL) -> list[Run]:
    """Runs of each n over the same range of nR."""
    return [Run(n, nR // n, play(n, nR // n)) for n in CLIENTS for nR in totals if nR // n <= MOST]


def table(runs: Sequence[Run]) -> list[dict[str, object]]:
    """As it is."""
    return [{"n": run.n, "R": run.R, "nR": run.n * run.R, "mean ‖∇f‖_trace": run.mean_norm} for run in runs]


def draw(runs: Sequence[Run]) -> Figure:
    """The mean norm against R, and against nR."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for n, colour in zip(CLIENTS, ("#0072B2", "#009E73", "#D55E00"), strict=True):
        mine = [run for run in runs if run.n == n]
        for axes, x in ((left, [run.R for run in mine]), (right, [n * run.R for run in mine])):
            axes.loglog(x, [run.mean_norm for run in mine], "o-", color=colour, label=f"n = {n}")
    left.set(xlabel="rounds R", ylabel="mean ‖∇f(X)‖_trace", title="more clients, fewer rounds")
    right.set(xlabel="nR", title="the same nR, the same gradient")
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    return figure
