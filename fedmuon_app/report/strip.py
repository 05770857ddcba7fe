"""Who is served well, and who badly: every client at the end of each method, and the worst of them over the rounds."""

import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from fedmuon_app.federation.folder import JUDGED
from fedmuon_app.federation.stopping import sign
from fedmuon_app.report.figure import Kind, a_panel_each, curve, shown
from fedmuon_app.report.runs import LAST, Run, Series

STRIP = Kind("clients", "method", "of each client", lambda run, line: None)
SERVED = Kind("clients_served", "round", "mean, tenth served worst and worst client", lambda run, line: line["round"])
WIDTH = 0.3  # of a method's dots, of the distance between two


def of_clients(run: Run) -> dict[str, float]:
    """The run's metric by client, mean of the last evaluations; empty where none was asked, or the run is archived."""
    file = run.folder / JUDGED
    if not file.exists():
        return {}
    lines = [json.loads(line)["clients"] for line in file.read_text().splitlines()[-LAST:]]
    return {i: fmean(line[i][0] for line in lines if i in line) for i in sorted({i for line in lines for i in line})}


def strip(experiments: Sequence[Series]) -> Figure | None:
    """A dot a client, a column a method, a panel a problem; None where nothing is known of clients."""
    known = {id(e): [value for run in e.runs for value in of_clients(run).values()] for e in experiments}
    some = [e for e in experiments if known[id(e)]]
    if not some:
        return None
    figure, panels = a_panel_each(list(dict.fromkeys(e.panel for e in some)))
    for ax, panel in panels:
        lines = shown([e for e in some if e.panel == panel])
        for column, line in enumerate(lines):
            values = np.sort(known[id(line.experiment)])
            across = column + WIDTH * np.linspace(-1, 1, len(values)) if len(values) > 1 else [column]
            ax.plot(across, values, "o", color=line.colour, markersize=4, alpha=0.8)
            ax.hlines(values.mean(), column - WIDTH, column + WIDTH, color=line.colour)
        ax.set_xticks(range(len(lines)), [line.label for line in lines], rotation=20)
        ax.set_title(panel, fontsize="medium")
        ax.set_ylabel(f"{measured(lines[0].experiment)} {STRIP.y_label}")
        ax.grid(axis="y", alpha=0.3)
    return figure


def served(experiments: Sequence[Series]) -> Figure | None:
    """Over the rounds the clients' mean, the tenth that is served worst, and the worst; None where none was asked."""
    some = [e for e in experiments if e.runs and all(len(curve(e, kind)[0]) for kind in kinds_of(e))]
    if not some:
        return None
    figure, panels = a_panel_each(list(dict.fromkeys(e.panel for e in some)))
    for ax, panel in panels:
        lines = shown([e for e in some if e.panel == panel])
        for line in lines:
            for kind, style in kinds_of(line.experiment).items():
                x, mean, _ = curve(line.experiment, kind)
                ax.plot(x, mean, style, color=line.colour, linewidth=1.6, label=line.label if style == "-" else None)
        ax.set(xlabel="round", ylabel=f"{measured(lines[0].experiment)} at the clients")
        ax.set_title(f"{panel}\n(mean: solid; one client in ten is worse: dashed; worst: dotted)", fontsize="medium")
        ax.legend(fontsize="small")
        ax.grid(alpha=0.3)
    return figure


def measured(experiment: Series) -> str:
    """What its clients judge X by, e.g. accuracy or loss."""
    return experiment.metric.removeprefix("test_")


def kinds_of(experiment: Series) -> dict[Kind, str]:
    """The three lines of a method and their styles; of a loss, the worst tenth lies above the 90th percentile."""
    tenth = "p10" if sign(experiment.metric) > 0 else "p90"
    parts = {"mean": "-", tenth: "--", "worst": ":"}
    return {replace(SERVED, y=f"client_{measured(experiment)}_{part}"): style for part, style in parts.items()}
