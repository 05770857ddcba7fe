"""Who holds which classes: a heat map of examples by client and class."""

import csv
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmuon_app.federation.folder import LABELS
from fedmuon_app.report.figure import Kind, a_panel_each
from fedmuon_app.report.runs import Series

HEAT_MAP = Kind("labels", "class", "examples of each client", lambda run, line: None)
MOST_ROWS = 40  # clients that are named along the axis


def heat_map(labels: NDArray[np.int64], classes: Sequence[str], ids: Sequence[int]) -> Figure:
    """Examples by client (down) and class (across), int64[clients, classes]."""
    high = max(2.5, min(12, 0.22 * len(ids) + 1.5))
    figure = Figure(figsize=(max(4, 0.4 * len(classes) + 2), high), layout="constrained")
    _draw(figure, figure.subplots(), labels, classes, ids)
    return figure


def heat_maps(experiments: Sequence[Series]) -> Figure | None:
    """A heat map for each problem, of the first of its runs that knows; None where none does."""
    found: dict[str, tuple[NDArray[np.int64], list[str], list[int]]] = {}
    for e in experiments:
        for run in e.all_runs:
            file = run.folder / LABELS
            if e.panel not in found and file.exists():
                head, *rows = list(csv.reader(file.read_text().splitlines()))
                table = np.array(rows, dtype=np.int64)
                found[e.panel] = table[:, 1:], head[1:], table[:, 0].tolist()
    if not found:
        return None
    figure, panels = a_panel_each(list(found), high=4.6)
    for ax, panel in panels:
        _draw(figure, ax, *found[panel])
        ax.set_title(panel, fontsize="medium")
    return figure


def name_across(axes: Axes, classes: Sequence[str]) -> None:
    """Name the columns, upright where the names are long."""
    axes.set_xticks(range(len(classes)), list(classes), rotation=90 if max(map(len, classes)) > 2 else 0)


def _draw(figure: Figure, axes: Axes, labels: NDArray[np.int64], classes: Sequence[str], ids: Sequence[int]) -> None:
    image = axes.imshow(labels, aspect="auto", cmap="Blues", interpolation="nearest")
    name_across(axes, classes)
    step = -(-len(ids) // MOST_ROWS)
    axes.set_yticks(range(0, len(ids), step), [str(i) for i in ids[::step]])
    axes.set(xlabel="class", ylabel="client")
    figure.colorbar(image, label="examples")
