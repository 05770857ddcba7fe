"""A run's progress: a bar on a terminal, plain lines elsewhere and for runs side by side."""

import multiprocessing
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedmuon_app.algorithms.server import Server
from fedmuon_app.federation.callbacks import Callback


class Progress(Callback):
    """Shows round, accuracy, rounds a second and the time left."""

    def __init__(self, rounds: int, title: str, done: int = 0) -> None:
        """Start.

        Args:
            rounds: R.
            title: what is shown in front.
            done: rounds that an earlier life of the run has trained.
        """
        self._rounds, self._title, self._done, self._started = rounds, title, done, time.monotonic()
        self._accuracy = ""
        self._line: Mapping[str, Any] | None = None
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(file=sys.stdout),
            disable=not sys.stdout.isatty() or multiprocessing.parent_process() is not None,
        )
        self._task = self._bar.add_task(title, total=rounds, completed=done, note="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def after_evaluation(self, line: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._line = line

    def after_round(self, r: int, server: Server) -> None:
        """See :class:`Callback`."""
        self.show(r, self._line)
        self._line = None

    def show(self, r: int, line: Mapping[str, Any] | None) -> None:
        """Round ``r`` is done; ``line`` is its evaluation, if it had one."""
        speed = max(r - self._done, 1) / max(time.monotonic() - self._started, 1e-9)
        if line is not None:
            name, value = next((key, x) for key, x in line.items() if key.startswith("test_"))
            self._accuracy = f"{name.removeprefix('test_')} {_shown(value)}"
        pace = f"{speed:.1f} rounds/s" if speed >= 1 else f"{1 / speed:.1f} s/round"
        self._bar.update(self._task, completed=r, note=f"{self._accuracy}  {pace}")
        if self._bar.disable and line is not None:
            trained, tested = (_shown(line[key]) for key in ("train_loss", "test_loss"))
            left = timedelta(seconds=round((self._rounds - r) / speed))
            print(
                f"{self._title}  round {r}/{self._rounds}  {self._accuracy}  test loss {tested}  "
                f"train loss {trained}  {pace}  {left} left",
                flush=True,
            )

    def goes_on(self, done: int) -> None:
        """An earlier life of the run has trained so many rounds; they do not count for the speed."""
        self._done, self._started = done, time.monotonic()
        self._bar.update(self._task, completed=done)

    def say(self, text: str) -> None:
        """A line of its own, above the bar where there is one."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
