"""What lies in a run's folder."""

import json
from pathlib import Path
from typing import Any

METRICS, COHORTS = "metrics.jsonl", "cohorts.jsonl"  # a line an evaluation, a line a round
JUDGED = "clients.jsonl"  # what each client says of X, a line an evaluation
RESULT, MODEL, ABOUT_MODEL = "result.json", "model.safetensors", "model.json"  # of a run that is complete
LABELS = "labels.csv"  # examples by client and class
SWEEP = "sweep.json"  # beside the runs of a sweep: how many, and when it began
BEST = "model.best.safetensors"  # the model of the best evaluation so far
GOING = "going.json"  # of a run that has begun and is not complete: what result.json will begin with
FAILED = "failed.json"  # of one that did not complete: why, its configuration, versions
CHECKPOINT, CLIENTS, CONTROLS = "checkpoint.safetensors", "clients", "controls"  # what clients keep; the server's C_i
LOCK = ".lock"  # while a process writes there


def sweep_of(folder: Path) -> tuple[int, int, float]:
    """Of a sweep's folder: the number of runs, how many were complete before, and when it began; zeros: unknown."""
    file = folder / SWEEP
    said = json.loads(file.read_text()) if file.exists() else {}
    return said.get("runs", 0), said.get("before", 0), said.get("began", 0.0)


def finished(folder: Path) -> dict[str, Any] | None:
    """result.json of the complete run in ``folder``; None where there is none."""
    file = folder / RESULT
    return json.loads(file.read_text()) if file.exists() else None
