"""The figure of a report: test accuracy against the round."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.report.runs import Experiment

# Okabe and Ito's colours, told apart by most colour-blind readers
COLOURS = dict(zip(METHODS, ("#E69F00", "#F0E442", "#009E73", "#56B4E9", "#0072B2", "#D55E00", "#CC79A7"), strict=True))
STYLES = ("-", "--", ":", "-.")


def save(experiments: Sequence[Experiment], folder: Path) -> list[Path]:
    """Write accuracy.png and accuracy.svg; the same runs give the same files."""
    figure, files = draw(experiments), [folder / "accuracy.png", folder / "accuracy.svg"]
    with mpl.rc_context({"svg.hashsalt": "fedmuon"}):
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    return files


def draw(experiments: Sequence[Experiment]) -> Figure:
    """A panel for each data set and partition, a line for each experiment: the mean over its seeds.

    The band is one sample standard deviation to each side; one seed has none.
    """
    panels = sorted({e.panel for e in experiments})
    figure = Figure(figsize=(6.4 * len(panels), 4.4), layout="constrained")
    for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
        _panel(axes, panel, [e for e in experiments if e.panel == panel])
    return figure


def curve(e: Experiment) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Rounds that all seeds evaluated, with the mean and the spread of their accuracies."""
    by_round = [{int(line["round"]): float(line["test_accuracy"]) for line in run.lines} for run in e.runs]
    rounds = sorted(set.intersection(*(set(lines) for lines in by_round)))
    values = np.array([[lines[r] for r in rounds] for lines in by_round])
    spread = values.std(axis=0, ddof=1) if len(by_round) > 1 else np.zeros(len(rounds))
    return rounds, values.mean(axis=0), spread


def _panel(axes: Axes, panel: str, experiments: Sequence[Experiment]) -> None:
    for e in experiments:
        alike = [other.label for other in experiments if other.method == e.method]
        style = STYLES[alike.index(e.label) % len(STYLES)]
        rounds, mean, spread = curve(e)
        axes.plot(rounds, mean, style, color=COLOURS[e.method], label=e.label, linewidth=1.8)
        axes.fill_between(rounds, mean - spread, mean + spread, color=COLOURS[e.method], alpha=0.2, linewidth=0)
    axes.set(title=panel, xlabel="round", ylabel="test accuracy", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
