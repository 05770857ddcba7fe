"""Who is served well, and who badly: every client at the end of each method, and the worst of them over the rounds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from fedmuon_app.federation.folder import JUDGED
from fedmuon_app.report.figure import Kind, a_panel_each, curve, shown
from fedmuon_app.report.runs import LAST, Run, Series

STRIP = Kind("clients", "method", "accuracy of each client", lambda run, line: None)
SERVED = Kind("clients_served", "round", "mean, 10th percentile and worst client", lambda run, line: line["round"])
PARTS = {"client_accuracy_mean": "-", "client_accuracy_p10": "--", "client_accuracy_worst": ":"}
WIDTH = 0.3  # of a method's dots, of the distance between two


def of_clients(run: Run) -> dict[str, float]:
    """Accuracy by client, mean of the last evaluations; empty where no client was asked, or the run is archived."""
    file = run.folder / JUDGED
    if not file.exists():
        return {}
    lines = [json.loads(line)["clients"] for line in file.read_text().splitlines()[-LAST:]]
    return {i: fmean(line[i][0] for line in lines if i in line) for i in sorted({i for line in lines for i in line})}


def strip(experiments: Sequence[Series]) -> Figure | None:
    """A dot a client, a column a method, a panel a problem; None where nothing is known of clients."""
    known = {id(e): [accuracy for run in e.runs for accuracy in of_clients(run).values()] for e in experiments}
    some = [e for e in experiments if known[id(e)]]
    if not some:
        return None
    figure, panels = a_panel_each(list(dict.fromkeys(e.panel for e in some)))
    for ax, panel in panels:
        lines = shown([e for e in some if e.panel == panel])
        for column, line in enumerate(lines):
            accuracies = np.sort(known[id(line.experiment)])
            across = column + WIDTH * np.linspace(-1, 1, len(accuracies)) if len(accuracies) > 1 else [column]
            ax.plot(across, accuracies, "o", color=line.colour, markersize=4, alpha=0.8)
            ax.hlines(accuracies.mean(), column - WIDTH, column + WIDTH, color=line.colour)
        ax.set_xticks(range(len(lines)), [line.label for line in lines], rotation=20)
        ax.set_title(panel, fontsize="medium")
        ax.set_ylabel(STRIP.y_label)
        ax.grid(axis="y", alpha=0.3)
    return figure


def served(experiments: Sequence[Series]) -> Figure | None:
    """Over the rounds the clients' mean, 10th percentile and worst of each method; None where no client was asked."""
    kinds = {replace(SERVED, y=key): style for key, style in PARTS.items()}
    some = [e for e in experiments if e.runs and all(len(curve(e, kind)[0]) for kind in kinds)]
    if not some:
        return None
    figure, panels = a_panel_each(list(dict.fromkeys(e.panel for e in some)))
    for ax, panel in panels:
        for line in shown([e for e in some if e.panel == panel]):
            for kind, style in kinds.items():
                x, mean, _ = curve(line.experiment, kind)
                ax.plot(x, mean, style, color=line.colour, linewidth=1.6, label=line.label if style == "-" else None)
        ax.set(xlabel="round", ylabel="accuracy at the clients")
        ax.set_title(f"{panel}\n(mean: solid; 10th percentile: dashed; worst client: dotted)", fontsize="medium")
        ax.legend(fontsize="small")
        ax.grid(alpha=0.3)
    return figure
