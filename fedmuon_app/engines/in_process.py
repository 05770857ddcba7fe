"""The engine without Flower: the round loop in this process, and all clients in it or in workers beside it."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from joblib import cpu_count
from torch import Tensor

from fedmuon_app.algorithms.client import NonFiniteError
from fedmuon_app.algorithms.server import Server
from fedmuon_app.config import Config
from fedmuon_app.engines.devices import DeviceWorkers
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.workers import Workers
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import Experiment, build, header, keeping, pick_device, trackers
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.checkpoint import rounds_in, states_beside
from fedmuon_app.federation.judging import Judge, Judged, NothingHeldError
from fedmuon_app.federation.loop import Evaluate, TrainClients, nonempty_clients, run_rounds
from fedmuon_app.federation.protocol import CallId, Cohort, Failure, Replies
from fedmuon_app.federation.resident import ResidentStates
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.states import ClientStates, StateError, unnamed_states
from fedmuon_app.federation.vmap import answer_stacked, largest_stack

STATES_OF_FREE = 0.5  # of a device's free memory, that states may take


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says and write the run's folder.

    Raises:
        InputError: something the user can mend, before training.
        NoGoodReplyError: training diverged in every client, several rounds in a row.
        WorkerDiedError: a worker was killed.
    """
    if c.engine.devices:
        check_devices(c)
        c = replace(c, device="cpu")  # of the server; each client's is its worker's
    workers = number_of_workers(c, pick_device(c.device).type)
    # OpenMP's threads do not outlive a fork, and waiting for them hangs
    experiment = build(c, threads=1 if workers else None)
    train(c, experiment, folder, workers, bar=Progress(c.rounds, folder.name, rounds_in(folder) if c.resume else 0))


def train(
    c: Config,
    experiment: Experiment,
    folder: Path,
    workers: int,
    callbacks: Sequence[Callback] = (),
    bar: Progress | None = None,
) -> Server:
    """Train a run that is built, and write its folder; the server after the last round.

    Args:
        c: its configuration.
        experiment: the run.
        folder: the run's.
        workers: processes that train clients; 0: none but this one.
        callbacks: told of every round.
        bar: shown, and told of every round.

    Raises:
        InputError: another run has written in the folder.
        NoGoodReplyError: training diverged in every client, several rounds in a row.
        WorkerDiedError: a worker was killed.
    """
    ids, clients = nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round), experiment.clients
    rows = len(clients.parts), clients.initial_state(), clients.objective.device
    told = [*([bar] if bar else []), *callbacks, *trackers(c, folder)]
    runlog = RunLog(folder, header(c, experiment), told, keeping(c))
    experiment.note_labels(folder)
    states: ClientStates = states_beside(folder, *rows) if c.checkpoint.every else unnamed_states(*rows)
    if on_device(c, clients.objective.device.type):
        states = resident = ResidentStates(states, room(clients.objective.device))
        told.append(resident)
    told += experiment.diagnostics(c, states)
    engine: TrainClients
    evaluate: Evaluate
    most = len(ids) if experiment.plan.gradient_start else experiment.plan.clients_per_round
    with contextlib.ExitStack() as stack:
        if c.engine.devices:
            open_states = functools.partial(states_beside, folder, *rows[:2])
            pool = stack.enter_context(DeviceWorkers(experiment, c, open_states, most))
            engine, evaluate = pool.train, pool.evaluate
        else:
            engine, evaluate = stack.enter_context(trainers(c, experiment, states, workers, most))
        if bar:  # it has a thread, which a fork would leave behind
            stack.enter_context(bar)
        model = experiment.model if c.checkpoint.best else None
        judge = one_judge_by_one(experiment)
        server = run_rounds(experiment.plan, ids, experiment.server, engine, evaluate, runlog, judge=judge, model=model)
        runlog.finish(experiment.model(server.X), experiment.about_model(c), experiment.more(c, server.X))
    return server


@contextlib.contextmanager
def trainers(
    c: Config, experiment: Experiment, states: ClientStates, workers: int, most: int
) -> Iterator[tuple[TrainClients, Evaluate]]:
    """What trains the clients of a round, ``most`` of them, and what tests X: on this process's own device."""
    if workers:  # they inherit the folder's lock: as long as one trains, no other run may go on there
        with Workers(experiment, states, workers, most, c.engine.threads) as pool:
            yield pool.train, pool.evaluate
    elif c.engine.stacked:
        yield stacked(experiment, states, c.engine.stack_memory), experiment.evaluate
    else:
        yield one_by_one(experiment, states), experiment.evaluate


def check_devices(c: Config) -> None:
    """Refuse what does not go with ``engine.devices``.

    Raises:
        InputError: a device is not there, or another key asks for something else.
    """
    for device in c.engine.devices or []:
        pick_device(device)
    for key, value, holds in (
        ("engine.workers", c.engine.workers, not c.engine.workers),
        ("engine.stacked", c.engine.stacked, not c.engine.stacked),
        ("engine.states", c.engine.states, c.engine.states != "device"),
        ("checkpoint.every", c.checkpoint.every, c.checkpoint.every is not None),
    ):
        if not holds:
            raise InputError(
                f"{key} = {value}: not with engine.devices, whose workers play one client after the other, a worker a "
                "device, and share a file of the run's folder"
            )


def on_device(c: Config, device: str) -> bool:
    """Whether ``engine.states`` lets clients' states stay in this process."""
    return c.engine.states == "device" or (c.engine.states == "auto" and device == "cuda")


def room(device: torch.device) -> int:
    """Bytes that clients' states may take on a device: a share of what is free."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return int(STATES_OF_FREE * free)


def number_of_workers(c: Config, device: str) -> int:
    """``engine.workers``, or what suits this machine: a worker a core on a CPU, none on a GPU.

    Raises:
        InputError: workers cannot be had here.
    """
    if c.engine.workers is None:
        if (
            c.engine.devices
            or sys.platform != "linux"
            or device != "cpu"
            or c.engine.stacked
            or c.engine.states == "device"
        ):
            return 0
        cores = cpu_count() // c.engine.threads
        return min(cores, c.federation.clients_per_round) if cores > 1 else 0
    for obstacle in (
        "with engine.stacked = true" if c.engine.stacked else "",
        "with engine.states = device: workers share a file" if c.engine.states == "device" else "",
        f"with device = {device}: it cannot be shared by forked processes" if device != "cpu" else "",
        f"on {sys.platform}: it has no safe fork" if sys.platform != "linux" else "",
    ):
        if c.engine.workers and obstacle:
            raise InputError(f"engine.workers = {c.engine.workers}: must be 0 or null {obstacle}")
    return c.engine.workers


def one_by_one(experiment: Experiment, states: ClientStates) -> TrainClients:
    """The clients of a round one after the other."""

    def train_clients(call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor) -> Replies:
        replies: Replies = {}
        for i, counted in cohort.items():
            try:
                replies[i] = experiment.clients.answer(call_id, i, counted, X, C, states)
            except (NonFiniteError, StateError) as error:
                replies[i] = Failure(str(error))
        return replies

    return train_clients


def one_judge_by_one(experiment: Experiment) -> Judge:
    """The clients that judge X, one after the other in this process."""

    def judge(call_id: CallId, clients: Sequence[int], X: Tensor) -> Mapping[int, Judged | Failure]:
        found: dict[int, Judged | Failure] = {}
        for i in clients:
            try:
                found[i] = experiment.clients.judge(i, X)
            except NothingHeldError as error:
                found[i] = Failure(str(error))
        return found

    return judge


def stacked(experiment: Experiment, states: ClientStates, gibibytes: float | None) -> TrainClients:
    """The clients of a round in as few computations as fit into the memory given."""
    most = largest_stack(experiment.clients, gibibytes)
    start = one_by_one(experiment, states)

    def train_clients(call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor) -> Replies:
        if call_id.round == 0:
            return start(call_id, cohort, X, C)
        return answer_stacked(experiment.clients, call_id, cohort, X, C, states, most)

    return train_clients
