"""When a run has gone far enough: by its evaluations alone, so that a resumed run stops where the whole one would."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SMALL = ("loss", "norm", "perplexity", "error", "mae", "std", "drift", "bias")  # what is better when it is small


def sign(metric: str) -> int:
    """What a key of metrics.jsonl is multiplied by to be larger when it is better: -1 of a loss or the like, else 1."""
    return -1 if any(word in metric for word in SMALL) else 1


@dataclass(frozen=True)
class Stopping:
    """Rules; None: not this one.

    Attributes:
        metric: a key of metrics.jsonl, for ``value`` and ``patience``.
        value: stop when the metric has reached it.
        patience: stop after so many evaluations without a gain.
        delta: what a gain must exceed.
        accuracy: stop when the test accuracy has reached it.
        seconds: stop at the first evaluation after so many.
        bytes: the same of bytes_up + bytes_down.
    """

    metric: str = "test_accuracy"
    value: float | None = None
    patience: int | None = None
    delta: float = 0.0
    accuracy: float | None = None
    seconds: float | None = None
    bytes: float | None = None

    def reason(self, lines: Sequence[Mapping[str, Any]]) -> str | None:
        """Why to stop after the last of these lines of metrics.jsonl; None: go on."""
        last, side = lines[-1], sign(self.metric)
        now = number(last.get(self.metric)) * side
        if self.accuracy is not None and number(last.get("test_accuracy")) >= self.accuracy:
            return f"test_accuracy = {last['test_accuracy']:.4f} has reached stop.accuracy = {self.accuracy:g}"
        if self.value is not None and now >= self.value * side:
            return f"{self.metric} = {now * side:.4g} has reached stop.value = {self.value:g}"
        if self.patience is not None and self._waited(lines, side) >= self.patience:
            return f"{self.metric} has not gained more than {self.delta:g} in {self.patience} evaluations"
        if self.seconds is not None and last["seconds"] >= self.seconds:
            return f"{last['seconds']:.0f} s are over stop.seconds = {self.seconds:g}"
        sent = last["bytes_up"] + last["bytes_down"]
        if self.bytes is not None and sent >= self.bytes:
            return f"{sent / 1e6:.1f} MB are over stop.bytes = {self.bytes:g}"
        return None

    def _waited(self, lines: Sequence[Mapping[str, Any]], side: int) -> int:
        """Evaluations since the last gain."""
        best, waited = -math.inf, 0
        for line in lines:
            value = number(line.get(self.metric)) * side
            if value > best + self.delta:
                best, waited = value, 0
            else:
                waited += 1
        return waited


def number(value: float | None) -> float:
    """Of a line; NaN where nobody could say."""
    return math.nan if value is None else value  # nothing is reached by it
