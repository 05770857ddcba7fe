"""One client's round: the inner loop of Algorithm 1, for every method of the table."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from fedmuon_app.algorithms.methods import Method
from fedmuon_app.algorithms.params import Params, minus, not_finite, plus, zeros
from fedmuon_app.algorithms.steps import Hyper, Moments, adam, is_matrix

Batch = TypeVar("Batch")

Gradient = Callable[[Params, Batch], tuple[Tensor, Params]]
"""(X, ξ) ↦ the loss F_i(X; ξ), a scalar without a graph, and ∇F_i(X; ξ). It must turn autograd on by itself."""


class NonFiniteError(ArithmeticError):
    """A gradient or momentum with NaN or infinity; the message names the parameters and the step."""


@dataclass(frozen=True)
class ClientState:
    """What client i keeps between its rounds. Tensors are shaped like X.

    Attributes:
        M: M_i, the momentum (Adam's first moment is the same thing).
        C: C_i. Under momentum control it is M itself, one set of tensors; {} without a control.
        v: Adam's second moment; {} for the other step rules.
        t: Adam's count of steps since its moments were zero.
        steps: minibatches drawn in this client's life; it decides which one comes next.
    """

    M: Params
    C: Params
    v: Params
    t: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Update:
    """What client i sends.

    Attributes:
        X: X_i, the parameters after the last local step.
        dC: C_i' - C_i; {} without a control.
        loss: mean training loss over the minibatches of the round, each at the X_i it was drawn for.
    """

    X: Params
    dC: Params
    loss: float


def initial_state(method: Method, X: Params) -> ClientState:
    """M_i = 0 and C_i = 0: the state of a client that has never been sampled (Theorem 1's start)."""
    M = zeros(X)
    C = {"none": {}, "gradient": zeros(X), "momentum": M}[method.control]
    return ClientState(M, C, v=zeros(X) if _uses_adam(method) else {})


@torch.no_grad()
def initial_gradient(
    method: Method, hp: Hyper, gradient: Gradient[Batch], X: Params, state: ClientState, batch: Batch
) -> tuple[Update, ClientState]:
    """The theory's start, C_i^(0) = ∇F_i(X^(0); ξ) (Theorem 2), as an update with X_i = X.

    Every client does this once before round 1; the server's step on all n updates then gives
    C^(0) = (1/n) Σ C_i^(0). Under momentum control M_i^(0) = C_i^(0), and a heavy ball starts at its
    stationary size g/α.

    Raises:
        NonFiniteError: the gradient is not finite.
    """
    loss, g = gradient(X, batch)
    _refuse_non_finite(g, step=0)
    C = {w: x / hp.alpha for w, x in g.items()} if _is_big(method, hp) else dict(g)
    M = C if method.control == "momentum" else state.M
    return Update(X, minus(C, state.C), float(loss)), replace(state, M=M, C=C, steps=state.steps + 1)


@torch.no_grad()
def local_round(
    method: Method,
    hp: Hyper,
    gradient: Gradient[Batch],
    X: Params,
    C: Params,
    state: ClientState,
    batches: Iterable[Batch],
) -> tuple[Update, ClientState]:
    """Take one local step per minibatch, starting from the server's X. Pure: no argument changes.

    Args:
        method: a row of METHODS.
        hp: its numbers.
        gradient: the stochastic gradient oracle of client i.
        X: X^(r), the global parameters.
        C: C^(r), the global control variate; {} for a method without a control.
        state: what this client kept from its last round, or :func:`initial_state`.
        batches: ξ_i^(r,0) … ξ_i^(r,K-1), at least one.

    Returns:
        What to send, and the state to keep once that is on its way.

    Raises:
        NonFiniteError: a momentum stopped being finite; the state is then as it was.
        ValueError: no minibatch.
    """
    uses_adam, C_i = _uses_adam(method), state.C
    M, v, t = (state.M, state.v, state.t) if hp.keep_momentum else (zeros(state.M), zeros(state.v), 0)
    weight = 1.0 if hp.heavy_ball else hp.alpha
    X_i: Params = X
    g_sum, losses = zeros(X) if method.control == "gradient" else {}, []
    for k, batch in enumerate(batches):
        loss, g = gradient(X_i, batch)
        losses.append(loss)
        corrected = plus(minus(g, C_i), C) if method.control == "gradient" else g
        M = {w: m.mul(1 - hp.alpha).add(corrected[w], alpha=weight) for w, m in M.items()}  # momentum
        G = plus(minus(M, C_i), C) if method.control == "momentum" else M  # bias correction
        _refuse_non_finite(G, step=k)
        if uses_adam:
            t += 1
            g_v = plus(minus(g, C_i), C) if method.control == "momentum" else corrected
            v = {w: x.mul(hp.beta2).addcmul(g_v[w], g_v[w], value=1 - hp.beta2) for w, x in v.items()}
        X_i = {w: x + _step(method, hp, w, G[w], Moments(v[w], t) if uses_adam else None) for w, x in X_i.items()}
        if method.control == "gradient":
            g_sum = plus(g_sum, g)
    if not losses:
        raise ValueError("a local round needs at least one minibatch")
    K = len(losses)
    C_next: Params = {
        "none": {},
        "gradient": {w: g / K for w, g in g_sum.items()},
        "momentum": M,
    }[method.control]
    update = Update(X_i, minus(C_next, C_i), float(torch.stack(losses).mean()))
    return update, ClientState(M, C_next, v, t, state.steps + K)


def _step(method: Method, hp: Hyper, name: str, G: Tensor, moments: Moments | None) -> Tensor:
    """η·D of one parameter."""
    if is_matrix(name, G, hp):
        return hp.lr * method.matrix_step(G, moments, hp)
    return hp.vector_lr * method.vector_step(G, moments, hp)


def _uses_adam(method: Method) -> bool:
    return adam in (method.matrix_step, method.vector_step)


def _is_big(method: Method, hp: Hyper) -> bool:
    """Whether C_i holds a heavy ball, 1/α times the size of a gradient."""
    return hp.heavy_ball and method.control == "momentum"


def _refuse_non_finite(G: Params, step: int) -> None:
    """One test for the sum of all parameters (one wait for a GPU); names are looked up on failure only."""
    if not torch.stack([g.isfinite().all() for g in G.values()]).all():
        raise NonFiniteError(
            f"not finite at local step {step + 1} in {', '.join(not_finite(G))}: "
            "the step size is too large for this model, or the data holds NaN"
        )
