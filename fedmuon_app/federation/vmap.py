"""A round's clients as one computation: torch.func.vmap over the arithmetic of their local rounds.

For a GPU, which a single client's LeNet leaves idle between its launches. On a CPU it is slower than one client
after the other (docs/performance.md) and serves the tests.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedmuon_app.algorithms.client import (
    ClientState,
    NonFiniteError,
    Update,
    local_steps,
    next_state,
    not_finite,
    slots_not_finite,
)
from fedmuon_app.algorithms.steps import Slots
from fedmuon_app.data.examples import Batch, mapped, together
from fedmuon_app.errors import InputError
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.protocol import CallId, Cohort, Failure, Replies
from fedmuon_app.federation.states import ClientStates, StateError

Padded = tuple[Any, Tensor, Tensor]

VECTORS = 12  # of float[d] that a client's round holds at once: X_i, M, C_i, G, g, D and their temporaries
ACTIVATIONS = 2  # times what the forward pass saves: gradients of the same sizes
MOST_OF_FREE = 0.8


def answer_stacked(
    clients: Clients, call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor, states: ClientStates, most: int
) -> Replies:
    """What the clients of ``cohort`` send, ``most`` of them at a time; what they keep goes to ``states``.

    Raises:
        InputError: the model draws random numbers, which would depend on the stack.
    """
    replies: Replies = {}
    for start in range(0, len(cohort), most):
        part = dict(list(cohort.items())[start : start + most])
        replies |= _one_stack(clients, call_id, part, X, C, states)
    return replies


def largest_stack(clients: Clients, gibibytes: float | None) -> int:
    """How many clients fit into the memory given, at least 1; None: into most of what is free on the GPU.

    An estimate: the vectors of a local round, and what one forward pass of B examples saves for its backward pass.
    """
    objective, saved = clients.objective, 0

    def count(x: Tensor) -> Tensor:
        nonlocal saved
        saved += x.numel() * x.element_size()
        return x

    fullest = max(range(len(clients.parts)), key=lambda i: len(clients.parts[i]))
    (batch,) = clients.minibatches(fullest, 0, 1)
    X = objective.X0()
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        objective.gradient(X, batch)
    each = VECTORS * X.numel() * X.element_size() + ACTIVATIONS * saved
    if gibibytes is None:
        if objective.device.type != "cuda":
            return len(clients.parts)
        return max(1, int(MOST_OF_FREE * torch.cuda.mem_get_info(objective.device)[0] / each))
    return max(1, int(gibibytes * 2**30 / each))


@torch.no_grad()
def _one_stack(
    clients: Clients, call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor, states: ClientStates
) -> Replies:
    method, hp, objective, K = clients.method, clients.hp.at(call_id.round), clients.objective, clients.K
    replies: Replies = {}
    before: dict[int, ClientState] = {}
    for i, counted in cohort.items():
        try:
            before[i] = clients.state(call_id, i, counted, states)
        except StateError as error:
            replies[i] = Failure(str(error))
    if not before:
        return replies
    drawn = [clients.minibatches(i, state.steps, K) for i, state in before.items()]
    batches = [padded(clients, [own[k] for own in drawn]) for k in range(K)]
    M, C_i = (torch.stack(parts) for parts in zip(*((s.M, s.C) for s in before.values()), strict=True))
    slots = {name: torch.stack([s.kept[name] for s in before.values()]) for name in next(iter(before.values())).kept}
    t = torch.tensor([s.t for s in before.values()], dtype=torch.float64, device=objective.device)

    def steps(kept: tuple[Tensor, Tensor, Slots], t: Tensor, batches: list[Padded]) -> tuple[Any, ...]:
        return local_steps(method, hp, objective.layout, objective.weighted_gradient, X, C, kept, t, batches)

    try:
        X_i, M, C_next, slots, losses = torch.vmap(steps)((M, C_i, slots), t, batches)
    except RuntimeError as error:
        if "randomness" in str(error):
            raise InputError(
                "engine.stacked = true: this model draws random numbers (dropout); set it to false"
            ) from error
        raise
    dC, finite = C_next - C_i, torch.cat([X_i, M, *slots.values()], 1).isfinite().all(1).tolist()
    for j, ((i, old), loss) in enumerate(zip(before.items(), losses.tolist(), strict=True)):
        try:
            own = {name: x[j] for name, x in slots.items()}
            if not finite[j]:
                raise not_finite(
                    objective.layout.not_finite(X_i[j], M[j]) or slots_not_finite(objective.layout, own), K
                )
            states.save(i, call_id, next_state(method, hp, old, K, M[j], C_next[j], own), cohort[i])
            replies[i] = Update(X_i[j], dC[j], loss)
        except (NonFiniteError, StateError) as error:
            replies[i] = Failure(str(error))
    return replies


def padded(clients: Clients, parts: Sequence[Batch]) -> Padded:
    """One minibatch of each client: inputs [S, B, …], targets [S, B, …], weights float[S, B] (0: padding)."""
    targets = pad_sequence([part.targets for part in parts], batch_first=True)
    weights = pad_sequence([torch.full((len(part),), 1 / len(part)) for part in parts], batch_first=True)
    raw = together(lambda many: pad_sequence(many, batch_first=True), [part.inputs for part in parts])
    S = len(parts)
    flat = clients.objective.inputs(mapped(lambda x: x.flatten(0, 1), raw))
    inputs = mapped(lambda x: x.view(S, -1, *x.shape[1:]), flat)
    return inputs, targets, weights.to(targets.device)
