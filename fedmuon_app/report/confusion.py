"""Which classes are taken for which, at the end of each experiment."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmuon_app.report.figure import Kind
from fedmuon_app.report.labels import name_across
from fedmuon_app.report.runs import Series

CONFUSION = Kind("confusion", "what it is taken for", "share of each class", lambda run, line: None)
ACROSS = 4  # panels


def counted(experiment: Series) -> tuple[list[str], NDArray[np.int64]] | None:
    """The classes, and the test examples by true class and by what they were taken for, summed over the seeds.

    Returns:
        int64[classes, classes]; None where no run has counted.
    """
    found = [run.result["confusion"] for run in experiment.runs if run.result.get("confusion")]
    return (found[0]["classes"], np.sum([one["counts"] for one in found], axis=0)) if found else None


def confusions(experiments: Sequence[Series]) -> Figure | None:
    """A panel for each experiment that has counted; None where none has."""
    known = [(e, found) for e in experiments if (found := counted(e))]
    if not known:
        return None
    across, down = min(ACROSS, len(known)), -(-len(known) // ACROSS)
    figure = Figure(figsize=(4.2 * across, 4.2 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for (e, (classes, counts)), ax in zip(known, panels, strict=False):
        shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        name_across(ax, classes)
        ax.set_yticks(range(len(classes)), classes)
        ax.set_title(" ".join(filter(None, (e.name, e.settings))) + f"\n{e.panel}", fontsize="medium")
        ax.set(xlabel="taken for", ylabel="class")
    for ax in list(panels):
        ax.set_axis_off()
    figure.colorbar(image, ax=figure.axes[: len(known)], label="share of the class", shrink=0.6)
    return figure
