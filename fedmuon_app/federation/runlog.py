"""A run's folder: metrics.jsonl while it runs, result.json and model.safetensors at its end."""

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from fedmuon_app.algorithms.layout import NamedTensors
from fedmuon_app.algorithms.server import Server
from fedmuon_app.errors import InputError

METRICS, RESULT, MODEL = "metrics.jsonl", "result.json", "model.safetensors"
PACKAGES = ("fedmuon-app", "flwr", "flwr-datasets", "hydra-core", "numpy", "ray", "torch", "torchvision")


@dataclass(frozen=True)
class Evaluation:
    """X after a round, on the test set. ``train_loss`` is the round's clients'; ``seconds`` since the start."""

    round: int
    test_accuracy: float
    test_loss: float
    train_loss: float
    seconds: float


Watch = Callable[[int, Mapping[str, Any] | None], None]
"""Told of every round: its number, and its line of metrics.jsonl where it was evaluated."""


class RunLog:
    """Writes a run's folder and counts what goes over the wire (4 bytes a float, whatever the engine)."""

    def __init__(self, folder: Path, header: Mapping[str, Any], watch: Watch = lambda r, line: None) -> None:
        """Start the folder.

        Args:
            folder: made if needed.
            header: what result.json begins with (algorithm, dataset, seed, …).
            watch: told of every round.

        Raises:
            InputError: another run has written here.
        """
        self.folder, self._header, self._watch = folder, dict(header), watch
        self._bytes_up = self._bytes_down = 0
        self._dropped: Counter[int] = Counter()
        self._cohorts: list[list[int]] = []
        self._lines: list[dict[str, Any]] = []
        self._started = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        refuse_used(folder)
        self._file = (folder / METRICS).open("x")

    def count(self, server: Server, asked: int, replied: int) -> None:
        """Add a round's traffic: X and C to each client asked, as much from each that replied."""
        size = sum(x.numel() * x.element_size() for x in (server.X, server.C))
        self._bytes_down += asked * size
        self._bytes_up += replied * size

    def drop(self, client: int) -> None:
        """Count a reply that was not used."""
        self._dropped[client] += 1

    def round(self, r: int, sampled: Sequence[int], evaluation: Evaluation | None) -> None:
        """Note a finished round, and write its line if it was evaluated."""
        self._cohorts.append(list(sampled))
        line = None
        if evaluation is not None:
            line = asdict(evaluation) | {"bytes_up": self._bytes_up, "bytes_down": self._bytes_down}
            self._lines.append(line)
            print(json.dumps(line), file=self._file, flush=True)
        self._watch(r, line)

    def finish(self, model: NamedTensors) -> None:
        """Write the model and, last, result.json: where that stands, the run is complete."""
        accuracies = [line["test_accuracy"] for line in self._lines]
        result = self._header | {
            "rounds": len(self._cohorts),
            "final_accuracy": accuracies[-1],
            "best_accuracy": max(accuracies),
            "seconds": time.monotonic() - self._started,
            "bytes_up": self._bytes_up,
            "bytes_down": self._bytes_down,
            "dropped": dict(sorted(self._dropped.items())),
            "versions": versions(),
        }
        self._file.close()
        save_file({w: x.detach().cpu().contiguous() for w, x in model.items()}, self.folder / MODEL)
        (self.folder / "cohorts.json").write_text(json.dumps(self._cohorts) + "\n")
        new = self.folder / (RESULT + ".new")
        new.write_text(json.dumps(result, indent=2) + "\n")
        os.replace(new, self.folder / RESULT)


def refuse_used(folder: Path) -> None:
    """A folder is for one run.

    Raises:
        InputError: another run has written here.
    """
    if (folder / METRICS).exists():
        raise InputError(f"run_dir = {folder} holds a run already: choose another folder")


def versions() -> dict[str, str]:
    """What the numbers of a run depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
