"""What a complete run has come to, in a few lines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmuon_app.federation.folder import METRICS, finished

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
    last, best = lines[-1], max(lines, key=lambda line: line["test_accuracy"])
    rows = [
        ("final accuracy", f"{last['test_accuracy']:.4f} after round {last['round']}"),
        ("best accuracy", f"{best['test_accuracy']:.4f} after round {best['round']}"),
    ]
    for level in LEVELS:
        first = next((line for line in lines if line["test_accuracy"] >= level), None)
        sent = 0.0 if first is None else (first["bytes_up"] + first["bytes_down"]) / 1e6
        rows.append((f"to {level:.0%}", "not reached" if first is None else f"{first['round']} rounds, {sent:,.0f} MB"))
    if "client_accuracy_worst" in last:
        rows.append(("worst client", f"{last['client_accuracy_worst']:.4f}"))
    dropped = sum(sum(said.values()) for said in result["dropped"].values())
    if dropped:
        rows.append(("replies dropped", f"{dropped} of {len(result['dropped'])} clients: result.json says why"))
    if result.get("stopped"):
        rows.append(("stopped", result["stopped"]))
    return rows
