"""What each method reaches in a budget: runs that differ in their rounds, each with a schedule over its own."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmuon_app.report.figure import Kind, look
from fedmuon_app.report.runs import Series

BUDGETS = Kind("budgets", "budget", "what is reached in a budget", lambda run, line: line["round"])
AXES = {"rounds": "budget of rounds", "bytes": "budget of MB, up and down"}


def budgets(experiments: Sequence[Series]) -> Figure | None:
    """Two panels a problem, over rounds and over bytes; None where no method has two budgets with decaying steps."""
    some = [e for e in experiments if e.runs and e.config["algorithm.schedule"] != "constant"]
    by_panel = {panel: _lines(some, panel) for panel in dict.fromkeys(e.panel for e in some)}
    panels = [panel for panel, lines in by_panel.items() if any(len(line) > 1 for line in lines)]
    if not panels:
        return None
    figure = Figure(figsize=(11.2, 4.2 * len(panels)), layout="constrained")
    for row, panel in zip(figure.subplots(len(panels), 2, squeeze=False, sharey="row"), panels, strict=True):
        for ax, kind in zip(row, AXES, strict=True):
            _draw(ax, panel, kind, by_panel[panel])
    return figure


def reached(e: Series) -> Mapping[str, float]:
    """Rounds, megabytes, and the last evaluation: means over the seeds."""
    results = [run.result for run in e.runs]
    sent = fmean((float(r["bytes_up"]) + float(r["bytes_down"])) / 1e6 for r in results)
    last = fmean(float(run.lines[-1][e.metric]) for run in e.runs)
    return {"rounds": fmean(int(r["rounds"]) for r in results), "bytes": sent, "value": last}


def _lines(experiments: Sequence[Series], panel: str) -> list[list[Series]]:
    """The experiments of each method there, by their rounds."""
    here = [e for e in experiments if e.panel == panel]
    by_method = [[e for e in here if e.method == method] for method in dict.fromkeys(e.method for e in here)]
    return [sorted(line, key=lambda e: int(e.config["rounds"])) for line in by_method]


def _draw(axes: Axes, panel: str, kind: str, lines: Sequence[Sequence[Series]]) -> None:
    for line in lines:
        points = [reached(e) for e in line]
        colour, marker = look(line[0])
        x, y = [point[kind] for point in points], [point["value"] for point in points]
        axes.plot(x, y, color=colour, marker=marker, label=line[0].name)
    axes.set(xscale="log", xlabel=AXES[kind], ylabel=lines[0][0].metric.replace("_", " "))
    axes.set_title(panel, fontsize="medium")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
