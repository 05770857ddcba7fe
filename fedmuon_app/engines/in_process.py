"""The engine without Flower: the round loop in this process, and all clients in it or in workers beside it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fedmuon_app.algorithms.client import NonFiniteError
from fedmuon_app.build import Job, build, header
from fedmuon_app.config import Config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.workers import Workers
from fedmuon_app.errors import InputError
from fedmuon_app.federation.loop import Evaluate, TrainClients, run_rounds, with_data
from fedmuon_app.federation.replies import Failure, Replies
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.stack import answer_stacked, largest_stack
from fedmuon_app.federation.states import ClientStates, unnamed_states


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says and write the run's folder.

    Raises:
        InputError: something the user can mend, before training.
        NoGoodReplyError: training diverged in every client, several rounds in a row.
        WorkerDiedError: a worker was killed.
    """
    job = build(c)
    ids, clients = with_data(job.sizes(), job.plan.clients_per_round), job.clients
    with unnamed_states(len(clients.parts), clients.initial_state(), clients.problem.device) as states:
        if workers := number_of_workers(c, clients.problem.device.type):
            most = len(ids) if job.plan.gradient_start else job.plan.clients_per_round
            with Workers(job, states, workers, most) as pool:
                _loop(c, folder, job, ids, pool.train, pool.evaluate)
        else:
            train = stacked(job, states, c.engine.stack_memory) if c.engine.stacked else one_by_one(job, states)
            _loop(c, folder, job, ids, train, job.evaluate)


def number_of_workers(c: Config, device: str) -> int:
    """``engine.workers``, or what suits this machine: a worker a core on a CPU, none on a GPU.

    Raises:
        InputError: workers cannot be had here.
    """
    if c.engine.workers is None:
        if sys.platform != "linux" or device != "cpu" or c.engine.stacked:
            return 0
        cores = len(os.sched_getaffinity(0)) // c.engine.threads
        return min(cores, c.federation.clients_per_round) if cores > 1 else 0
    for obstacle in (
        "with engine.stacked = true" if c.engine.stacked else "",
        f"with device = {device}: it cannot be shared by forked processes" if device != "cpu" else "",
        f"on {sys.platform}: it has no safe fork" if sys.platform != "linux" else "",
    ):
        if c.engine.workers and obstacle:
            raise InputError(f"engine.workers = {c.engine.workers}: must be 0 or null {obstacle}")
    return c.engine.workers


def one_by_one(job: Job, states: ClientStates) -> TrainClients:
    """The clients of a round one after the other."""

    def train_clients(r: int, cohort: Sequence[int], X: Tensor, C: Tensor) -> Replies:
        replies: Replies = {}
        for i in cohort:
            try:
                replies[i] = job.clients.answer(r, i, X, C, states)
            except NonFiniteError as error:
                replies[i] = Failure(str(error))
        return replies

    return train_clients


def stacked(job: Job, states: ClientStates, gibibytes: float | None) -> TrainClients:
    """The clients of a round in as few computations as fit into the memory given."""
    most = largest_stack(job.clients, gibibytes)
    start = one_by_one(job, states)

    def train_clients(r: int, cohort: Sequence[int], X: Tensor, C: Tensor) -> Replies:
        if r == 0:
            return start(r, cohort, X, C)
        return answer_stacked(job.clients, cohort, X, C, states, most)

    return train_clients


def _loop(
    c: Config, folder: Path, job: Job, ids: Sequence[int], train_clients: TrainClients, evaluate: Evaluate
) -> None:
    with Progress(c.rounds, folder.name) as progress:
        runlog = RunLog(folder, header(c), progress)
        server = run_rounds(job.plan, ids, job.server, train_clients, evaluate, runlog)
        runlog.finish(job.model(server.X))
