"""Processes that train clients and test X, over memory that they share with this one: nothing is serialised.

Who computes what is decided by who is free. No number depends on it: a client's round is a function of
(seed, client, round, X, C, its state), and sums are taken by the caller in the order of client ids.
"""

import mmap
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import NonFiniteError, Update
from fedmuon_app.errors import RunError
from fedmuon_app.experiment import Experiment
from fedmuon_app.federation.protocol import CallId, Cohort, Failure, Replies
from fedmuon_app.federation.states import ClientStates, StateError
from fedmuon_app.objective import parts_of

Task = tuple[Any, ...]
"""("train", call_id, client, counted, slot) or ("test", start, stop)."""


class WorkerDiedError(RunError):
    """A worker's process has ended in the middle of a run."""


class Workers:
    """A pool of forked processes; a context manager."""

    def __init__(self, experiment: Experiment, states: ClientStates, count: int, most: int, threads: int = 1) -> None:
        """Fork them: before threads are started, torch's own among them.

        Args:
            experiment: the run.
            states: must be shared between processes.
            count: of processes, >= 1.
            most: clients that a round may call.
            threads: of torch, in each.
        """
        self._share(experiment, most, _shared)
        fork = multiprocessing.get_context("fork")
        for _ in range(count):
            here, there = fork.Pipe()
            self._pipes.append(here)
            process = fork.Process(target=self._forked, args=(there, states, threads), daemon=True)
            self._begin(process, there)

    def _share(self, experiment: Experiment, most: int, memory: Callable[[int, int, torch.dtype], Tensor]) -> None:
        """Set up what the processes will see."""
        X, C = experiment.server.X, experiment.server.C
        self._experiment, self._d = experiment, len(X)
        self._model = memory(1, len(X) + len(C), X.dtype)[0]  # X, then C
        self._slots = memory(most, len(X) + len(C), X.dtype)  # X_i, then ΔC_i
        self._model[: self._d] = X
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def _begin(self, process: BaseProcess, there: Connection) -> None:
        self._processes.append(process)
        process.start()
        there.close()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._processes:
            worker.terminate()
        for worker in self._processes:
            worker.join()

    def train(self, call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor) -> Replies:
        """A round of the clients of ``cohort``. The replies are good until the next call.

        Raises:
            WorkerDiedError: a process has ended.
        """
        torch.cat([X, C], out=self._model)
        work = {i: min(len(self._experiment.clients.parts[i]), self._experiment.clients.batch_size) for i in cohort}
        longest_first = sorted(cohort, key=lambda i: -work[i])
        losses = self._map([("train", call_id, i, cohort[i], slot) for slot, i in enumerate(longest_first)])
        replies: Replies = {}
        for slot, (i, loss) in enumerate(zip(longest_first, losses, strict=True)):
            row = self._slots[slot]
            replies[i] = loss if isinstance(loss, Failure) else Update(row[: self._d], row[self._d :], loss)
        return replies

    def evaluate(self, X: Tensor) -> Mapping[str, float]:
        """What is measured of X on the test set: the same parts, summed in the same order, as in one process.

        Raises:
            WorkerDiedError: a process has ended.
        """
        self._model[: self._d] = X
        test = self._experiment.data.test
        scores = self._map([("test", part.start, part.stop) for part in parts_of(test)])
        return self._experiment.clients.objective.measured(scores)

    def _map(self, tasks: Sequence[Task]) -> list[Any]:
        """The results in the order of the tasks; a worker gets the next one when it is done with its last."""
        results: list[Any] = [None] * len(tasks)
        waiting, busy = list(range(len(tasks)))[::-1], {}
        for pipe in self._pipes[: len(tasks)]:
            busy[pipe] = waiting.pop()
            pipe.send(tasks[busy[pipe]])
        while busy:
            ready = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                try:
                    result = pipe.recv()
                except (EOFError, ConnectionError):
                    worker = self._processes[self._pipes.index(pipe)]
                    worker.join()
                    raise WorkerDiedError(
                        f"a worker process ended with exit code {worker.exitcode} (-9: killed, perhaps for memory): "
                        "the run cannot go on; fewer engine.workers need less memory"
                    ) from None
                if isinstance(result, Exception):
                    raise result
                results[busy.pop(pipe)] = result
                if waiting:
                    busy[pipe] = waiting.pop()
                    pipe.send(tasks[busy[pipe]])
        return results

    def _forked(self, pipe: Connection, states: ClientStates, threads: int) -> None:
        torch.set_num_threads(threads)
        for end in self._pipes:  # the parent's ends: only when nobody else holds them does its death show
            end.close()
        work(pipe, self._experiment, states, self._model, self._slots)


def work(pipe: Connection, experiment: Experiment, states: ClientStates, model: Tensor, slots: Tensor) -> None:
    """The life of a worker: it answers the tasks that come through ``pipe``.

    Args:
        pipe: to the parent.
        experiment: as in the parent, on the worker's device.
        states: what clients keep.
        model: X, then C, on the CPU: shared with the parent.
        slots: a row an update: X_i, then ΔC_i; shared with the server.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    clients, test = experiment.clients, experiment.data.test
    device, d = clients.objective.device, len(experiment.server.X)
    while True:
        try:
            kind, *task = pipe.recv()
        except EOFError:  # the parent is gone
            return
        try:
            X, C = (x.to(device) for x in (model[:d], model[d:]))
            if kind == "test":
                pipe.send(clients.objective.score(X, test, slice(*task)))
                continue
            call_id, i, counted, slot = task
            update = clients.answer(call_id, i, counted, X, C, states)
            torch.cat([update.X.cpu(), update.dC.cpu()], out=slots[slot])
            pipe.send(update.loss)
        except (NonFiniteError, StateError) as error:
            pipe.send(Failure(str(error)))
        except Exception as error:  # the parent raises it
            pipe.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """An exception that another process can raise; in place of one that pickle cannot carry, its type and words."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        error = copy if type(copy) is type(error) else RuntimeError(repr(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(traceback.format_exc())
    return error


def _shared(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros that forked processes share; pages that nobody writes cost nothing."""
    memory = mmap.mmap(-1, rows * columns * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(rows, columns)
