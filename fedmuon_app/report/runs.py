"""Finished runs on disk, and which of them are the same experiment with other seeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmuon_app.errors import InputError
from fedmuon_app.federation.runlog import METRICS, RESULT

# what may differ between two runs of one experiment
INCIDENTAL = ("seed", "run_dir", "device", "engine.", "evaluation.", "dataset.path", "federation.round_timeout")


@dataclass(frozen=True)
class Run:
    """One run: result.json, the lines of metrics.jsonl, and its configuration with dotted keys."""

    folder: Path
    result: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """Runs that differ in their seeds only.

    Attributes:
        panel: what they were trained on, e.g. "fashion_mnist, dirichlet β = 0.1".
        method: the algorithm.
        settings: what sets them apart from the other experiments of their method and panel, e.g. "lr=0.01".
        runs: at least one, by seed.
    """

    panel: str
    method: str
    settings: str
    runs: Sequence[Run]

    @property
    def label(self) -> str:
        """Method and settings."""
        return f"{self.method} ({self.settings})" if self.settings else self.method


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """All finished runs in ``folders`` and below, each once.

    Raises:
        InputError: a folder is not there, or there is no finished run in any.
    """
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder: name run folders, or folders above them")
        for file in sorted(folder.resolve().rglob(RESULT)):
            result = json.loads(file.read_text())
            lines = [json.loads(line) for line in (file.parent / METRICS).read_text().splitlines()]
            found[file.parent] = Run(file.parent, result, lines, _flat(result["config"]))
    if not found:
        raise InputError("no finished run (a folder with result.json) in " + ", ".join(map(str, folders)))
    return list(found.values())


def unfinished(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs that are still going, or that stopped before their end."""
    started = {file.parent for folder in folders for file in folder.resolve().rglob(METRICS)}
    return sorted(folder for folder in started if not (folder / RESULT).exists())


def experiments(runs: Iterable[Run]) -> list[Experiment]:
    """Group runs that differ in nothing but what is incidental; sorted by panel and label."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = {k: v for k, v in run.config.items() if not k.startswith(INCIDENTAL)}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    named: dict[tuple[str, str], list[tuple[dict[str, Any], list[Run]]]] = {}
    for text, members in groups.items():
        panel, method = _panel(members[0].config), str(members[0].config["algorithm.name"])
        named.setdefault((panel, method), []).append((json.loads(text), members))
    result = []
    for (panel, method), alike in named.items():
        differing = sorted(k for k in alike[0][0] if len({json.dumps(key.get(k)) for key, _ in alike}) > 1)
        for key, members in alike:
            settings = ", ".join(f"{k.removeprefix('algorithm.')}={key.get(k)}" for k in differing)
            by_seed = sorted(members, key=lambda run: int(run.config["seed"]))
            result.append(Experiment(panel, method, settings, by_seed))
    return sorted(result, key=lambda e: (e.panel, e.label))


def _panel(config: Mapping[str, Any]) -> str:
    beta = f" β = {config['partition.beta']:g}" if config["partition.name"] == "dirichlet" else ""
    return f"{config['dataset.name']}, {config['partition.name']}{beta}"


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
