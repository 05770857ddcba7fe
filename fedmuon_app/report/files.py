"""Where runs lie: in run folders, or archived, two small files for a whole sweep."""

import csv
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmuon_app.errors import InputError
from fedmuon_app.federation.evaluation import ends
from fedmuon_app.federation.folder import FAILED, GOING, METRICS, RESULT, finished
from fedmuon_app.federation.jsonl import until
from fedmuon_app.report.runs import Run

CURVES, ARCHIVE = "curves.csv", "runs.json"

Tree = dict[str, Any]


def refuse_missing(folders: Collection[Path]) -> None:
    """Refuse folders that are not there.

    Raises:
        InputError: names the first.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder: name run folders, or folders above them")


def read_runs(folders: Collection[Path], going: bool = False) -> list[Run]:
    """All runs in ``folders`` and below that have completed or failed, and all runs archived there, each once.

    Args:
        folders: where to look.
        going: also runs that have begun and are not complete.

    Raises:
        InputError: a folder is not there, or no run has completed in any.
    """
    refuse_missing(folders)
    found: dict[Path, Run] = {}
    for folder in folders:
        for place in sorted({file.parent for name in (RESULT, FAILED) for file in folder.resolve().rglob(name)}):
            found[place] = _run(place)
        for file in sorted(folder.resolve().rglob(ARCHIVE)):
            found |= {run.folder: run for run in _archived(file)}
        if going:
            for file in folder.resolve().rglob(GOING):
                found.setdefault(file.parent, _going(file.parent))
    if not going and all(run.failed for run in found.values()):
        raise InputError("no finished run (a folder with result.json) in " + ", ".join(map(str, folders)))
    return list(found.values())


def unfinished(folders: Iterable[Path]) -> list[Path]:
    """Folders of runs that are still going, or that were stopped."""
    started = {file.parent for folder in folders for file in folder.resolve().rglob(METRICS)}
    return sorted(folder for folder in started if not any((folder / name).exists() for name in (RESULT, FAILED)))


def _run(folder: Path) -> Run:
    metrics = folder / METRICS
    result = finished(folder) or json.loads((folder / FAILED).read_text())
    lines = metrics.read_text().splitlines() if metrics.exists() else []  # a run may fail before it begins
    return Run(folder, result, [json.loads(line) for line in lines])


def _going(folder: Path) -> Run:
    """A run that is not complete, as if it ended with its last evaluation."""
    lines, _ = until(folder / METRICS, sys.maxsize)
    result = json.loads((folder / GOING).read_text()) | {"going": True, "dropped": {}, "rounds": 0}
    if lines:
        result |= {key: lines[-1][key] for key in ("seconds", "bytes_up", "bytes_down")}
        result |= {"rounds": lines[-1]["round"], **ends(lines, str(result.get("metric", "test_accuracy")))}
    return Run(folder, result, lines)


def archive(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write ``runs`` as two files that keep all that a report is made of.

    curves.csv holds the lines of all metrics.jsonl; runs.json what all result.json share, and what each has of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    above = Path(os.path.commonpath([run.folder.parent for run in runs]))
    names = [str(run.folder.relative_to(above)) for run in runs]
    columns = list(dict.fromkeys(key for run in runs for line in run.lines for key in line))
    with (folder / CURVES).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["run", *columns], lineterminator="\n")
        writer.writeheader()
        for name, run in zip(names, runs, strict=True):  # NaN and Infinity as JSON has them
            writer.writerows(
                {"run": name, **{k: json.dumps(x) for k, x in line.items() if x is not None}} for line in run.lines
            )
    results = [_without_place(run.result) for run in runs]
    shared = _shared(results)
    own = {name: _without(result, shared) for name, result in zip(names, results, strict=True)}
    (folder / ARCHIVE).write_text(json.dumps({"shared": shared, "runs": own}, indent=1, ensure_ascii=False) + "\n")
    return [folder / CURVES, folder / ARCHIVE]


def _archived(file: Path) -> list[Run]:
    lines: dict[str, list[dict[str, Any]]] = {}
    with (file.parent / CURVES).open(newline="") as stream:
        for row in csv.DictReader(stream):
            lines.setdefault(row.pop("run"), []).append({k: json.loads(x) if x else None for k, x in row.items()})
    stored = json.loads(file.read_text())
    return [
        Run(file.parent / name, _with(own, stored["shared"]), lines.get(name, []))
        for name, own in stored["runs"].items()
    ]


def _without_place(result: Mapping[str, Any]) -> Tree:
    """A result without the folders of the run and of its data: an archive is for other machines."""
    data = dict(result["config"].get("dataset", {}))
    data |= {"path": None} | ({"args": {**data["args"], "path": None}} if "path" in data.get("args", {}) else {})
    return {**result, "config": {**result["config"], "run_dir": None, "resume": None, "dataset": data}}


def _shared(trees: Sequence[Tree]) -> Tree:
    """What is the same in all of them, key by key."""
    first, *others = trees
    shared: Tree = {}
    for key, value in first.items():
        if isinstance(value, dict) and all(isinstance(tree.get(key), dict) for tree in others):
            shared[key] = _shared([tree[key] for tree in trees])
        elif all(key in tree and tree[key] == value for tree in others):
            shared[key] = value
    return shared


def _without(tree: Tree, shared: Tree) -> Tree:
    """The rest of a tree."""
    rest: Tree = {}
    for key, value in tree.items():
        if key not in shared:
            rest[key] = value
        elif isinstance(value, dict) and (below := _without(value, shared[key])):
            rest[key] = below
    return rest


def _with(rest: Tree, shared: Tree) -> Tree:
    """The whole tree again."""
    both = dict(shared)
    for key, value in rest.items():
        both[key] = _with(value, shared[key]) if key in shared else value
    return both
