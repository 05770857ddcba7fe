"""Theorem 3: FedMuon converges in ‖∇f‖_p for any number T of Newton-Schulz iterations; p falls with T.

p = 1 + log(1 - (1 - κ)^(1.5^T)) / log κ, with κ the smallest s_j/‖G‖_F of all G that the LMO was given. The proof's
inequality is ⟨G, NS_T(G)⟩ ≥ ‖G‖_p. (1.5 may be 15/8, for which the inequality still holds, and then is tight.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedmuon_app.algorithms.methods import METHODS, Hyper
from fedmuon_app.algorithms.newton_schulz import QUINTIC, newton_schulz
from fedmuon_app.algorithms.norms import exponent, schatten
from fedmuon_app.algorithms.steps import Muon
from fedmuon_app.theory.game import ToyFederation, quadratics

N, D1, D2, ROUNDS, ETA = 4, 4, 6, 200, 0.03
ITERATIONS = tuple(range(9))


@dataclass(frozen=True)
class Trial:
    """FedMuon with T iterations, K = 1 and all clients in each round.

    Attributes:
        T: Newton-Schulz iterations.
        kappa: measured, over every G of the run.
        p: of the theorem, from it.
        norms: ‖∇f(X^(r))‖_p for r = 0, 1, ….
        alignment: mean of ⟨G, NS_T(G)⟩ / ‖G‖_trace over the G of the run with T = 0: the same G for every T.
        slack: smallest ⟨G, NS_T(G)⟩ / ‖G‖_p over the G of this run: at least 1, says the proof.
    """

    T: int
    kappa: float
    p: float
    norms: list[float]
    alignment: float
    slack: float


def play(T: int, rounds: int) -> tuple[list[Tensor], Tensor]:
    """∇f(X^(r)) for each r, and all that the LMO was given: float64[rounds·n, d1, d2]."""
    gradients, _ = quadratics(N, D1, D2)
    method, hp = replace(METHODS["fedmuon"], matrix_step=Muon(T=T, scale="one")), Hyper(ETA, ETA, alpha=0.5)
    game = ToyFederation(method, hp, gradients, torch.zeros(D1, D2, dtype=torch.float64)).start_at_gradients()
    path, given = [], []
    for _ in range(rounds):
        path.append(sum((g(game.x, 0) for g in gradients), torch.zeros_like(game.X0)) / N)
        C, before = game.server.C, [game.state(i).C for i in range(N)]
        game.round(range(N))
        given += [game.matrix(game.state(i).M - before[i] + C) for i in range(N)]  # K = 1: M_i is the round's
    return path, torch.stack(given)


def measure(rounds: int = ROUNDS) -> list[Trial]:
    """A trial for each T."""
    trials = []
    common = play(0, rounds)[1]
    for T in ITERATIONS:
        path, G = play(T, rounds)
        kappa = float((torch.linalg.svdvals(G)[..., -1] / torch.linalg.matrix_norm(G)).min())
        p = exponent(kappa, T)
        inner = (G * newton_schulz(G, T, QUINTIC)).sum((-2, -1))
        aligned = (common * newton_schulz(common, T, QUINTIC)).sum((-2, -1)) / schatten(common, 1.0)
        norms = [float(schatten(g, p)) for g in path]
        slack = float((inner / schatten(G, p)).min())
        trials.append(Trial(T, kappa, p, norms, float(aligned.mean()), slack))
    return trials


def table(trials: Sequence[Trial]) -> list[dict[str, object]]:
    """κ, p, the norms at the start and (mean of the last tenth) at the end, the alignment and the proof's slack."""
    return [
        {
            "T": t.T,
            "κ": t.kappa,
            "p": t.p,
            "‖∇f‖_p at first": t.norms[0],
            "at last": sum(t.norms[-(len(t.norms) // 10) :]) / (len(t.norms) // 10),
            "⟨G, NS(G)⟩/‖G‖_trace": t.alignment,
            "min ⟨G, NS(G)⟩/‖G‖_p": t.slack,
        }
        for t in trials
    ]


def draw(trials: Sequence[Trial]) -> Figure:
    """‖∇f‖_p against rounds for each T; p and the alignment against T."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for t in trials:
        left.semilogy(t.norms, color=(0.85 - 0.1 * t.T, 0.35, 0.05 + 0.1 * t.T), label=f"T = {t.T}", linewidth=1.2)
    left.set(xlabel="round", ylabel="‖∇f(X)‖_p", title="FedMuon converges for every T")
    right.plot([t.T for t in trials], [t.p for t in trials], "o-", color="#0072B2", label="p (with the measured κ)")
    right.plot(
        [t.T for t in trials], [t.alignment for t in trials], "s-", color="#D55E00", label="⟨G, NS(G)⟩ / ‖G‖_trace"
    )
    right.set(xlabel="T", title="more iterations, a stronger norm")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure
