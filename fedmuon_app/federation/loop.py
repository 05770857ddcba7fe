"""THE round loop: sampling, the clients, the server's step, evaluation, log. Every engine runs this one."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.server import Server, server_step
from fedmuon_app.errors import InputError
from fedmuon_app.federation.replies import Failure, Replies, fault
from fedmuon_app.federation.runlog import Evaluation, RunLog
from fedmuon_app.federation.sampling import cohort

log = logging.getLogger("fedmuon")

PATIENCE = 3  # rounds in a row without one good reply

TrainClients = Callable[[int, Sequence[int], Tensor, Tensor], Replies]
"""An engine: (round, S_r, X, C) ↦ what each client of S_r sent. Round 0 asks for C_i^(0) instead."""

Evaluate = Callable[[Tensor], tuple[float, float]]
"""X ↦ test accuracy and test loss."""


class NoGoodReplyError(RuntimeError):
    """Several rounds in a row brought nothing; the message holds what the clients said."""


@dataclass(frozen=True)
class Plan:
    """The numbers of the loop: S, R, the outer step, how C starts, and when X is tested."""

    seed: int
    clients_per_round: int
    rounds: int
    evaluate_every: int
    outer_lr: float
    outer_momentum: float
    gradient_start: bool


def with_data(sizes: dict[int, int], S: int) -> list[int]:
    """The clients that have examples: they are the n of the federation.

    Args:
        sizes: number of examples by client id.
        S: clients a round.

    Raises:
        InputError: fewer than S have any.
    """
    clients = [i for i, m in sorted(sizes.items()) if m]
    empty = sorted(set(sizes) - set(clients))
    if empty:
        log.warning("left out, without a single example: client %s; n = %d", _list(empty), len(clients))
    if len(clients) < S:
        raise InputError(f"federation.clients_per_round = {S}: only {len(clients)} clients have any example")
    return clients


def run_rounds(
    plan: Plan, clients: Sequence[int], server: Server, train_clients: TrainClients, evaluate: Evaluate, runlog: RunLog
) -> Server:
    """Train for plan.rounds rounds.

    Args:
        plan: the numbers.
        clients: ids of the n clients.
        server: X^(0), C^(0) and the outer momentum.
        train_clients: the engine.
        evaluate: the test.
        runlog: takes every evaluation.

    Returns:
        The server after the last round.

    Raises:
        NoGoodReplyError: PATIENCE rounds in a row had no good reply.
    """
    n, silent, started = len(clients), 0, time.monotonic()
    if plan.gradient_start:
        good = usable(0, train_clients(0, clients, server.X, server.C), server, runlog)
        if len(good) < n:
            raise NoGoodReplyError("algorithm.start = gradient needs every client's gradient before round 1")
        runlog.count(server, asked=n, replied=n)
        server = server_step(server, good, n)
    for r in range(1, plan.rounds + 1):
        sampled = cohort(plan.seed, r, clients, plan.clients_per_round)
        replies = train_clients(r, sampled, server.X, server.C)
        good = usable(r, replies, server, runlog)
        runlog.count(server, asked=len(sampled), replied=len(good))
        silent = 0 if good else silent + 1
        if silent == PATIENCE:
            said = {reply.reason for reply in replies.values() if isinstance(reply, Failure)}
            raise NoGoodReplyError(f"no good reply in {PATIENCE} rounds in a row: {'; '.join(sorted(said))}")
        if good:
            server = server_step(server, good, n, plan.outer_lr, plan.outer_momentum)
        evaluation = None
        if r % plan.evaluate_every == 0 or r == plan.rounds:
            accuracy, loss = evaluate(server.X)
            train_loss = sum(u.loss for u in good) / len(good) if good else math.nan
            evaluation = Evaluation(r, accuracy, loss, train_loss, time.monotonic() - started)
        runlog.round(r, sampled, evaluation)
    return server


def usable(r: int, replies: Replies, server: Server, runlog: RunLog) -> list[Update]:
    """The usable updates in the order of client ids; the others are warned of and counted."""
    good = []
    for client, reply in sorted(replies.items()):
        reason = reply.reason if isinstance(reply, Failure) else fault(reply, server.X, server.C)
        if isinstance(reply, Update) and reason is None:
            good.append(reply)
        else:
            log.warning("round %d: client %d is dropped: %s", r, client, reason)
            runlog.drop(client)
    return good


def _list(ids: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, ids[:most])) + (f" and {len(ids) - most} more" if len(ids) > most else "")
