"""A run's folder: metrics.jsonl, cohorts.jsonl and the checkpoint while it runs; its result and model at the end."""

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import NamedTensors
from fedmuon_app.algorithms.server import Server
from fedmuon_app.disk import write_whole
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.counts import Counts
from fedmuon_app.federation.environment import versions
from fedmuon_app.federation.evaluation import Evaluation, ends
from fedmuon_app.federation.folder import (
    ABOUT_MODEL,
    BEST,
    CHECKPOINT,
    CLIENTS,
    COHORTS,
    CONTROLS,
    GOING,
    JUDGED,
    LOCK,
    METRICS,
    MODEL,
    RESULT,
)
from fedmuon_app.federation.jsonl import cut, print_line, until
from fedmuon_app.federation.judging import Judged
from fedmuon_app.federation.lock import take
from fedmuon_app.federation.stopping import Stopping, number, sign

log = logging.getLogger("fedmuon")

MOST_SAID = 1000  # reasons that are said aloud in a run


@dataclass(frozen=True)
class CheckpointOptions:
    """What a run keeps for a later resume.

    Attributes:
        config: the run's whole configuration, as YAML.
        every: rounds between checkpoints; None: none.
        resume: go on from the folder's checkpoint, where there is one.
    """

    config: str = ""
    every: int | None = None
    resume: bool = False


class RunLog:
    """Writes a run's folder."""

    def __init__(
        self,
        folder: Path,
        header: Mapping[str, Any],
        callbacks: Sequence[Callback] = (),
        keeping: CheckpointOptions | None = None,
    ) -> None:
        """Take the folder, for this process alone.

        Args:
            folder: made if needed.
            header: what result.json begins with (algorithm, dataset, seed, …).
            callbacks: told of every round.
            keeping: checkpoints.

        Raises:
            InputError: another run has written here, or is writing.
        """
        self.folder, self._header, self._keeping = folder, dict(header), keeping or CheckpointOptions()
        self._callbacks = callbacks
        self.metric = str(self._header.get("metric", "test_accuracy"))  # that decides which X is best
        self._rounds = 0
        self._stopped: str | None = None  # why before the last round
        self._said: set[str] = set()
        self._lines: list[dict[str, Any]] = []  # of metrics.jsonl
        self._versions = versions()  # of the code that trains: the clone may have moved on when the run ends
        self._lock = take(folder, self._keeping.resume)
        self._saved: RunState | None = None
        counts: dict[str, Any] = {}
        if (folder / CHECKPOINT).exists() and self._keeping.resume:
            self._saved, counts = checkpoint.read(folder)
        elif not (folder / CHECKPOINT).exists():
            for name in (CLIENTS, CONTROLS):  # of a run that nothing can go on from
                (folder / name).unlink(missing_ok=True)
        self.counts = Counts(counts)
        self._earlier = float(counts.get("seconds", 0.0))
        self.experiment = self._saved.experiment if self._saved else secrets.token_hex(8)
        self.clients = list(self._saved.clients) if self._saved else []
        self.owners = dict(self._saved.owners) if self._saved else {}

    def begin(self, server: Server, round_: int, rounds: int, clients: Sequence[int] = ()) -> RunState:
        """Where the run begins: at ``server`` after ``round_``, or at the checkpoint that it is to go on from.

        Args:
            server: X^(0), C^(0) and U.
            round_: -1 when round 0 is to come, else 0.
            rounds: R.
            clients: ids of the n clients; a run that goes on keeps the clients that it began with.

        Raises:
            InputError: the checkpoint is after more rounds than ``rounds``.
            RunError: nothing can be written.
        """
        standing = RunState(server, round_, self.experiment, clients=clients, owners=self.owners)
        if self._saved is not None:
            if self._saved.round > rounds:
                raise InputError(f"rounds = {rounds}: the run in {self.folder} has trained {self._saved.round} already")
            there = self._saved.server.to(server.X.device)
            standing = replace(self._saved, server=there, attempt=self._saved.attempt + 1, owners=self.owners)
            log.info("goes on after round %d", standing.round)
        self._started = time.monotonic() - self._earlier
        self._rounds = max(standing.round, 0)
        self._lines, metrics_end = until(self.folder / METRICS, self._rounds)
        drawn, cohorts_end = until(self.folder / COHORTS, self._rounds)
        if len(drawn) != self._rounds:
            raise InputError(f"resume = {self.folder}: {COHORTS} there has {len(drawn)} rounds of {self._rounds}")
        (self.folder / RESULT).unlink(missing_ok=True)  # the run is not complete any more
        with _writing(self.folder):
            self._write(GOING, self._header | {"versions": self._versions})
            self._metrics = cut(self.folder / METRICS, metrics_end)
            self._cohorts = cut(self.folder / COHORTS, cohorts_end)
        self.counts.settle(standing.round)
        return self.checkpoint(standing) if self._keeping.every else standing

    def checkpoint(self, standing: RunState) -> RunState:
        """Write the standing down; the same with what is saved now.

        What the log has noted since the standing's round is left out: a run may be stopped at any moment.

        Raises:
            RunError: it cannot be written; the last one still stands.
        """
        r = standing.round
        for one in self._callbacks:
            one.before_checkpoint(standing)
        counts = self.counts.after(r) | {"seconds": self.seconds()}
        with _writing(f"the checkpoint after round {r}"):
            for file in (self._metrics, self._cohorts):  # what it counts on is on the disk before it
                os.fsync(file.fileno())
            return checkpoint.write(self.folder, standing, counts, self._keeping.config)

    def due(self, standing: RunState, last: bool) -> bool:
        """Whether a checkpoint is to be written after this round."""
        every = self._keeping.every
        return every is not None and (last or standing.round % every == 0)

    @property
    def keeps(self) -> bool:
        """Whether there are checkpoints."""
        return self._keeping.every is not None

    def seconds(self) -> float:
        """Since the start, without the time between an end and a resume."""
        return time.monotonic() - self._started

    def is_news(self, reason: str) -> bool:
        """Whether a reason has not been said yet; of too many of them, none is any more."""
        news = reason not in self._said and len(self._said) < MOST_SAID
        self._said.add(reason)
        return news

    def measured(self, before: Server, after: RunState, good: Mapping[int, Update]) -> dict[str, float | None]:
        """What the callbacks have to say of an evaluated round."""
        return {key: x for one in self._callbacks for key, x in one.measure(before, after, good).items()}

    def round(self, r: int, sampled: Sequence[int], evaluation: Evaluation | None, server: Server) -> None:
        """Note a finished round, and write its line if it was evaluated.

        Raises:
            RunError: it cannot be written.
        """
        self._rounds = r
        self.counts.settle(r)
        with _writing(self.folder / COHORTS):
            print_line(self._cohorts, {"round": r, "clients": list(sampled)})
        if evaluation is not None:
            sent = {"bytes_up": self.counts.bytes_up, "bytes_down": self.counts.bytes_down}
            line = {**evaluation.line(), "seconds": self.seconds(), **sent, **evaluation.diagnostics}
            self._lines.append(line)
            with _writing(self.folder / METRICS):
                print_line(self._metrics, line)
            for one in self._callbacks:
                one.after_evaluation(line)
        for one in self._callbacks:
            one.after_round(r, server)

    def judged(self, r: int, found: Mapping[int, Judged], asked: int, X: Tensor) -> None:
        """Note what clients say of X after round ``r``, and what the asking cost.

        Raises:
            RunError: it cannot be written.
        """
        self.counts.judge(X, asked)
        file = self.folder / JUDGED
        said = {str(i): [one.value, one.loss, one.examples] for i, one in found.items()}
        with _writing(file), cut(file, until(file, r - 1)[1]) as stream:
            print_line(stream, {"round": r, "clients": said})

    def stops(self, rules: Stopping) -> bool:
        """Whether the run is to end with the round that was evaluated last."""
        self._stopped = rules.reason(self._lines)
        if self._stopped:
            log.warning("ends after round %d: %s", self._rounds, self._stopped)
        return self._stopped is not None

    def keep_best(self, now: Evaluation, model: Callable[[Tensor], NamedTensors] | None, X: Tensor) -> None:
        """Write X's model where it is to be kept, and is better than all before it.

        Raises:
            RunError: it cannot be written.
        """
        side = sign(self.metric)
        value = now.line()[self.metric] * side
        if model is not None and not any(number(line[self.metric]) * side >= value for line in self._lines):
            with _writing(self.folder / BEST):
                write_whole(self.folder / BEST, saved(model(X)), 0o666)

    def finish(
        self, model: NamedTensors, about_model: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model and, last, result.json: where that stands, the run is complete.

        Args:
            model: its state.
            about_model: for model.json, what it needs to be used.
            more: for result.json.

        Raises:
            RunError: they cannot be written.
        """
        result = (
            self._header
            | {
                "rounds": self._rounds,
                "stopped": self._stopped,
                **ends(self._lines, self.metric),
                "seconds": self.seconds(),
                **self.counts.now(),
                "versions": self._versions,
            }
            | dict(more or {})
        )
        with _writing(self.folder):
            write_whole(self.folder / MODEL, saved(model), 0o666)
            self._write(ABOUT_MODEL, about_model or {})
            self._write(RESULT, result)
            (self.folder / GOING).unlink(missing_ok=True)
        self.close()
        for one in self._callbacks:
            one.at_end(result)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_whole(self.folder / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode(), 0o666)

    def close(self) -> None:
        """Leave the folder as it is to others."""
        self._metrics.close()
        self._cohorts.close()
        (self.folder / LOCK).unlink(missing_ok=True)
        self._lock.close()


def saved(model: NamedTensors) -> bytes:
    """A model's state as safetensors."""
    return save({w: x.detach().cpu().contiguous() for w, x in model.items()})


@contextmanager
def _writing(what: object) -> Iterator[None]:
    """A full disk in one sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what} cannot be written: {error}") from error
