"""What a complete run has come to, in a few lines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmuon_app.federation.folder import METRICS, finished
from fedmuon_app.federation.stopping import number, sign

LEVELS = (0.85, 0.88)


def summary(folder: Path) -> list[str]:
    """Lines for a terminal; none where the run is not complete, or on another machine."""
    result = finished(folder)
    if result is None:
        return []
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    rows = _rows(result, lines)
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _rows(result: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    metric = str(result.get("metric", "test_accuracy"))
    name = metric.removeprefix("test_")
    last, best = lines[-1], max(lines, key=lambda line: number(line[metric]) * sign(metric))
    rows = [
        (f"{when} {name}", f"{number(line[metric]):.4f} after round {line['round']}")
        for when, line in (("final", last), ("best", best))
    ]
    for level in LEVELS if name == "accuracy" else ():
        first = next((line for line in lines if number(line[metric]) >= level), None)
        sent = 0.0 if first is None else (first["bytes_up"] + first["bytes_down"]) / 1e6
        rows.append((f"to {level:.0%}", "not reached" if first is None else f"{first['round']} rounds, {sent:,.0f} MB"))
    if f"client_{name}_worst" in last:
        rows.append(("worst client", f"{last[f'client_{name}_worst']:.4f}"))
    dropped = sum(sum(said.values()) for said in result["dropped"].values())
    if dropped:
        rows.append(("replies dropped", f"{dropped} of {len(result['dropped'])} clients: result.json says why"))
    if result.get("stopped"):
        rows.append(("stopped", result["stopped"]))
    return rows
