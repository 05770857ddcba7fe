"""THE round loop: sampling, the clients, the server's step, evaluation, log. Every engine runs this one."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from torch import Tensor

from fedmuon_app.algorithms.aggregation import Rule
from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import NamedTensors
from fedmuon_app.algorithms.server import Server
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.federation.aggregation import Aggregation, bent, controls_like
from fedmuon_app.federation.checkpoint import RunState, states_beside
from fedmuon_app.federation.evaluation import Evaluation
from fedmuon_app.federation.folder import CONTROLS
from fedmuon_app.federation.judging import Judge, Judged, judges, spread
from fedmuon_app.federation.protocol import CallId, Cohort, Failure, Replies, faults, outliers
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.sampling import cohort
from fedmuon_app.federation.states import unnamed_states
from fedmuon_app.federation.stopping import Stopping

log = logging.getLogger("fedmuon")

PATIENCE = 3  # rounds in a row without one good reply

TrainClients = Callable[[CallId, Cohort, Tensor, Tensor], Replies]
"""An engine: (call_id, S_r, X, C) ↦ what each client of S_r sent. Round 0 asks for C_i^(0) instead."""

Evaluate = Callable[[Tensor], Mapping[str, float]]
"""X ↦ what the task measures of it on the test set, by name."""


class NoGoodReplyError(RunError):
    """Several rounds in a row brought nothing; the message holds what the clients said."""


@dataclass(frozen=True)
class Plan:
    """The numbers of the loop: S, R, the outer step, how C starts, when X is tested, which updates are too large.

    ``aggregate`` is :class:`Aggregation`'s rule, ``stop`` may end it before round R, ``judges`` says who judges X.
    """

    seed: int
    clients_per_round: int
    rounds: int
    evaluate_every: int
    outer_lr: float
    outer_momentum: float
    gradient_start: bool
    norm_bound: float | None = None
    aggregate: Rule = field(default_factory=Rule)
    stop: Stopping = field(default_factory=Stopping)
    judges: str = "none"


def nonempty_clients(sizes: dict[int, int], S: int) -> list[int]:
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
    plan: Plan,
    clients: Sequence[int],
    server: Server,
    train_clients: TrainClients,
    evaluate: Evaluate,
    runlog: RunLog,
    present: Callable[[], Sequence[int]] | None = None,
    judge: Judge | None = None,
    model: Callable[[Tensor], NamedTensors] | None = None,
) -> Server:
    """Train until round plan.rounds is over, from the start or from the checkpoint that the log goes on from.

    Whatever ends it earlier, a checkpoint of the last whole round is written first, where the log keeps any.

    Args:
        plan: the numbers.
        clients: ids of the n clients; a run that goes on keeps the clients that it began with.
        server: X^(0), C^(0) and the outer momentum.
        train_clients: the engine.
        evaluate: the test.
        runlog: takes every evaluation.
        present: asked before each round which clients can be called; None: all can.
        judge: asks the clients that are to judge X, after each evaluation.
        model: X as it is saved, where the best one is to be kept too.

    Returns:
        The server after the last round.

    Raises:
        InputError: the checkpoint is damaged, or after a later round.
        NoGoodReplyError: PATIENCE rounds in a row had no good reply, or no round ever had one.
        RunError: a checkpoint cannot be written.
    """
    standing = runlog.begin(server, -1 if plan.gradient_start else 0, plan.rounds, clients)
    aggregation, kept, stopped = aggregation_of(plan, standing, runlog), standing.round, False
    try:
        if standing.round < 0:
            standing = _gradient_start(aggregation, standing, train_clients, runlog)
        while standing.round < plan.rounds and not stopped:
            r, server = standing.round + 1, standing.server
            there = standing.clients if present is None else present()
            sampled, call_id = (
                cohort(plan.seed, r, there, min(plan.clients_per_round, len(there))),
                CallId(standing.attempt, r),
            )
            replies = train_clients(call_id, standing.cohort(sampled), server.X, server.C)
            good, reasons = accept_replies(r, replies, server, runlog, plan.norm_bound, aggregation)
            runlog.counts.train(server, asked=len(sampled), replied=len(good))
            if good:
                server = aggregation.step(standing, call_id, good)
                _watch(r, server.C, good, plan.norm_bound, runlog)
            before, after = standing.server, standing.after(r, server, list(good), reasons.values())
            if after.silent >= PATIENCE:
                raise NoGoodReplyError(f"no good reply in {after.silent} rounds in a row: {'; '.join(after.said)}")
            evaluation = _evaluation(plan, r, server.X, good, evaluate)
            if evaluation:
                more = runlog.measured(before, after, good)
                evaluation = evaluation.with_(more, _judged(plan, call_id, there, server.X, judge, runlog))
                runlog.keep_best(evaluation, model, server.X)
            runlog.round(r, sampled, evaluation, server)
            standing = after
            stopped = evaluation is not None and runlog.stops(plan.stop)
            if runlog.due(standing, last=stopped or r == plan.rounds):
                standing, kept = runlog.checkpoint(standing), r
        if not standing.has_trained:
            raise NoGoodReplyError(f"no good reply in any round of {standing.round}: {'; '.join(standing.said)}")
    except BaseException:
        if runlog.keeps and standing.round > kept:
            with suppress(RunError):  # what ended the run is the news
                runlog.checkpoint(standing)
        runlog.close()
        raise
    return standing.server


def aggregation_of(plan: Plan, standing: RunState, runlog: RunLog) -> Aggregation:
    """The server's step; what it keeps by client lies in the run's folder, where the run can be resumed."""
    controls, C = None, standing.server.C
    if plan.aggregate.by_coordinate and len(C):
        rows = max(standing.clients) + 1, controls_like(C), C.device
        controls = states_beside(runlog.folder, *rows, name=CONTROLS) if runlog.keeps else unnamed_states(*rows)
    return Aggregation(plan.aggregate, plan.outer_lr, plan.outer_momentum, controls)


def _gradient_start(
    aggregation: Aggregation, standing: RunState, train_clients: TrainClients, runlog: RunLog
) -> RunState:
    """Round 0: C^(0) is the mean of the C_i^(0) of all clients."""
    server, clients, call_id = standing.server, standing.clients, CallId(standing.attempt, 0)
    good, reasons = accept_replies(
        0, train_clients(call_id, standing.cohort(clients), server.X, server.C), server, runlog
    )
    if reasons:
        said = "; ".join(sorted(set(reasons.values())))
        raise NoGoodReplyError(f"algorithm.start = gradient needs every client's gradient before round 1: {said}")
    runlog.counts.train(server, asked=len(clients), replied=len(good))
    runlog.counts.settle(0)
    return standing.after(0, aggregation.step(standing, call_id, good), list(good))


def _watch(r: int, C: Tensor, good: Mapping[int, Update], bound: float | None, runlog: RunLog) -> None:
    sentence = bent(C, good, bound)
    if sentence and runlog.is_news("‖C‖"):
        log.warning("round %d: %s", r, sentence)


def _judged(
    plan: Plan, call_id: CallId, there: Sequence[int], X: Tensor, judge: Judge | None, runlog: RunLog
) -> Mapping[str, float]:
    """What clients say of X, for the log; an answer that is lost or cannot be used is left out, and counted."""
    asked = judges(plan.seed, call_id.round, there, plan.judges)
    if judge is None or not asked:
        return {}
    found: dict[int, Judged] = {}
    for client, said in sorted(judge(call_id, asked, X).items()):
        if isinstance(said, Judged):
            found[client] = said
        else:
            runlog.counts.drop(client, f"no evaluation: {said.reason}")
    runlog.judged(call_id.round, found, len(asked), X)
    return spread(found, runlog.metric)


def _evaluation(plan: Plan, r: int, X: Tensor, good: Mapping[int, Update], evaluate: Evaluate) -> Evaluation | None:
    """The test after round ``r`` where it is due."""
    if r % plan.evaluate_every and r != plan.rounds:
        return None
    return Evaluation(r, evaluate(X), sum(u.loss for u in good.values()) / len(good) if good else None)


def accept_replies(
    r: int,
    replies: Replies,
    server: Server,
    runlog: RunLog,
    norm_bound: float | None = None,
    aggregation: Aggregation | None = None,
) -> tuple[dict[int, Update], dict[int, str]]:
    """The usable updates in the order of client ids, and why the others are not; these are warned of and counted."""
    updates = {client: reply for client, reply in sorted(replies.items()) if isinstance(reply, Update)}
    reasons = {client: reply.reason for client, reply in sorted(replies.items()) if isinstance(reply, Failure)}
    reasons |= faults(updates, server.X, server.C)
    good = {client: update for client, update in updates.items() if client not in reasons}
    if norm_bound is not None:
        reasons |= outliers(good, server.X, norm_bound)
    if aggregation is not None:
        reasons |= aggregation.left_out({i: u for i, u in good.items() if i not in reasons}, server.X)
    by_reason: dict[str, list[int]] = {}
    for client, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(client)
        runlog.counts.drop(client, reason)
    for reason, dropped in by_reason.items():
        if runlog.is_news(reason):
            log.warning("round %d: client %s is dropped: %s (said once; result.json counts)", r, _list(dropped), reason)
    return {client: update for client, update in good.items() if client not in reasons}, reasons


def _list(ids: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, ids[:most])) + (f" and {len(ids) - most} more" if len(ids) > most else "")
