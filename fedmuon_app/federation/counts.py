"""What a run counts: bytes over the wire (4 a float, whatever the engine), and replies that were not used."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmuon_app.algorithms.server import Server

REASONS, OTHERS = 10, "others"  # that are told apart for a client, and the name of the rest


class Counts:
    """The counts now, and those after each of the last two rounds: a run may be stopped at any moment."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """Begin at 0, or with the counts of a checkpoint."""
        saved = saved or {}
        self.bytes_up, self.bytes_down = int(saved.get("bytes_up", 0)), int(saved.get("bytes_down", 0))
        self.dropped: dict[int, dict[str, int]] = {int(i): said for i, said in saved.get("dropped", {}).items()}
        self._settled: dict[int, dict[str, Any]] = {}

    def train(self, server: Server, asked: int, replied: int) -> None:
        """A round's traffic: X and C to each client asked, as much from each that replied."""
        size = sum(x.numel() * x.element_size() for x in (server.X, server.C))
        self.bytes_down += asked * size
        self.bytes_up += replied * size

    def judge(self, X: Tensor, asked: int) -> None:
        """The traffic of an evaluation at the clients: X to each."""
        self.bytes_down += asked * X.numel() * X.element_size()

    def drop(self, client: int, reason: str) -> None:
        """A reply that was not used, under its reason."""
        before = self.dropped.get(client, {})
        name = reason if reason in before or len(before) < REASONS else OTHERS
        self.dropped[client] = before | {name: before.get(name, 0) + 1}

    def settle(self, r: int) -> None:
        """Round ``r`` is over: what is counted until now belongs to it."""
        counts = self.now()
        self._settled = {r: counts, r - 1: self._settled.get(r - 1, counts)}

    def after(self, r: int) -> dict[str, Any]:
        """The counts after round ``r``, the last one that was settled or the one before."""
        return self._settled[r]

    def now(self) -> dict[str, Any]:
        """The counts, for a checkpoint or result.json."""
        return {"bytes_up": self.bytes_up, "bytes_down": self.bytes_down, "dropped": dict(sorted(self.dropped.items()))}
