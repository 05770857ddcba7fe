"""The figures of a report: a panel for each problem, a line for each experiment."""

import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.federation.diagnostics import MEASURES
from fedmuon_app.federation.judging import SPREAD
from fedmuon_app.report.runs import Run, Series

# Okabe and Ito's colours, told apart by most colour-blind readers; the yellow darker, to be seen on white
PALETTE = ("#E69F00", "#B8A800", "#009E73", "#56B4E9", "#0072B2", "#D55E00", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # and by marks, for eyes that do not tell them apart, and in print
STYLES = ("-", "--", ":", "-.")  # of a method's experiments in one panel
MARKS = 12  # along a line
FEW = 8  # lines whose names find room in the panel itself
SHADES = 9  # experiments of one method that can be told apart where it is alone

Value = Callable[[Run, Mapping[str, float]], float | None]
"""A coordinate of a line of metrics.jsonl; None: it is not known."""


@dataclass(frozen=True)
class Kind:
    """A figure: its file's name, what stands along its axes, and where that comes from."""

    name: str
    x_label: str
    y_label: str
    x: Value
    y: str = "test_accuracy"
    log: bool = False


def _round(run: Run, line: Mapping[str, float]) -> float:
    return line["round"]


ACCURACY = (
    Kind("accuracy", "round", "test accuracy", _round),
    Kind("accuracy_by_epoch", "epoch", "test accuracy", lambda run, line: run.epochs(line["round"])),
    Kind(
        "accuracy_by_bytes", "MB sent, up and down", "test accuracy",
        lambda run, line: (line["bytes_up"] + line["bytes_down"]) / 1e6 if "bytes_up" in line else None,
    ),
)  # fmt: skip

LOSSES = (
    Kind("test_loss", "round", "test loss", _round, "test_loss"),
    replace(ACCURACY[2], name="test_loss_by_bytes", y_label="test loss", y="test_loss"),
    Kind("perplexity", "round", "test perplexity", _round, "test_perplexity", log=True),
    Kind("train_loss", "round", "train loss", _round, "train_loss", log=True),
)

DIAGNOSTICS = tuple(Kind(key, "round", sign, _round, key, log=True) for key, sign in MEASURES.items())


CLIENTS = tuple(Kind(key, "round", said, _round, key) for key, said in SPREAD.items())

KINDS = (*ACCURACY, *LOSSES, *CLIENTS, *DIAGNOSTICS)


def drawable(experiments: Sequence[Series]) -> dict[Kind, list[Series]]:
    """For each figure that any experiment has numbers for, the experiments that have."""
    completed = [e for e in experiments if e.runs]
    having = {kind: [e for e in completed if len(curve(e, kind)[0])] for kind in KINDS}
    return {kind: some for kind, some in having.items() if some}


def draw(
    experiments: Sequence[Series], kind: Kind, columns: int = 4, ylim: tuple[float, float] | None = None
) -> Figure:
    """A panel for each problem, a line for each experiment that is :func:`drawable`: the mean over its seeds.

    ``ylim`` is the part of an accuracy's axis that is shown; None: where the curves can be told apart.

    The band is one sample standard deviation to each side; one seed has none. Of a method that has more
    experiments in a panel than can be told apart, only the best is drawn.
    """
    panels = list(dict.fromkeys(e.panel for e in experiments))
    wide = min(len(panels), columns)
    high = -(-len(panels) // wide)
    most = max(len(shown([e for e in experiments if e.panel == panel])) for panel in panels)
    below = 0.13 * -(-most // 2) if most > FEW else 0.0  # inches of the names' lines
    figure = Figure(figsize=(5.6 * wide, (4.2 + below) * high), layout="constrained")
    axes = np.atleast_1d(figure.subplots(high, wide)).flatten()
    for ax, panel in zip(axes, panels, strict=False):
        _panel(ax, panel, [e for e in experiments if e.panel == panel], kind, ylim)
    for ax in axes[len(panels) :]:
        ax.remove()
    return figure


def a_panel_each(problems: Sequence[str], high: float = 4.2) -> tuple[Figure, Iterator[tuple[Axes, str]]]:
    """A figure with these panels side by side, and each with its name."""
    figure = Figure(figsize=(5.6 * len(problems), high), layout="constrained")
    return figure, zip(figure.subplots(1, len(problems), squeeze=False)[0], problems, strict=True)


@dataclass(frozen=True)
class Line:
    """What is drawn of an experiment, and how."""

    experiment: Series
    colour: str
    style: str
    label: str
    marker: str = ""


Curve = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def curve(e: Series, kind: Kind) -> Curve:
    """x, mean and spread of y over the seeds, at the rounds that all of them evaluated and have numbers for."""
    by_round = [{int(line["round"]): (kind.x(run, line), line.get(kind.y)) for line in run.lines} for run in e.runs]
    common = sorted(set.intersection(*(set(points) for points in by_round)))
    rows = [[points[r] for points in by_round] for r in common]
    known = np.array([row for row in rows if all(None not in point for point in row)], dtype=float)
    if not len(known):
        return np.empty(0), np.empty(0), np.empty(0)
    x, y = known[..., 0].mean(1), known[..., 1]
    return x, y.mean(1), y.std(1, ddof=1) if y.shape[1] > 1 else np.zeros(len(y))


def shown(experiments: Sequence[Series]) -> list[Line]:
    """The lines of a panel: a method has a colour and its experiments styles; of one method alone they have colours."""
    methods = list(dict.fromkeys(e.method for e in experiments))
    if len(methods) == 1 and 1 < len(experiments) <= SHADES:
        shades = mpl.colormaps["viridis"](np.linspace(0.05, 0.9, len(experiments)))
        return [Line(e, to_hex(shade), "-", e.label) for e, shade in zip(experiments, shades, strict=True)]
    lines = []
    for method in methods:
        alike = [e for e in experiments if e.method == method]
        colour, marker = look(alike[0])
        if len(alike) > len(STYLES):
            best = max(alike, key=lambda e: e.score)
            lines.append(Line(best, colour, STYLES[0], f"{best.label}, best of {len(alike)}", marker))
        else:
            lines += [Line(e, colour, style, e.label, marker) for e, style in zip(alike, STYLES, strict=False)]
    return lines


def look(e: Series) -> tuple[str, str]:
    """A method's colour and mark: the same in every report, its own, or some for one that is not known here."""
    known, method = list(METHODS), e.method
    i = known.index(method) if method in known else len(known) + zlib.crc32(method.encode()) % len(PALETTE)
    colour = str(e.config.get("algorithm.colour") or PALETTE[i % len(PALETTE)])
    return colour, MARKERS[(i + i // len(PALETTE)) % len(MARKERS)]


def window(curves: Sequence[Curve]) -> tuple[float, float]:
    """The part of the accuracies in which the curves can be told apart: early rounds, and what fails, may lie below."""
    values = np.concatenate([mean for _, mean, _ in curves])
    low, top = float(np.quantile(values, 0.25)), float(values.max())
    bottom = max(float(values.min()), low - 3 * (top - low))
    margin = 0.05 * (top - bottom) or 0.05
    return bottom - margin, top + margin


def _panel(axes: Axes, panel: str, experiments: Sequence[Series], kind: Kind, ylim: tuple[float, float] | None) -> None:
    curves = [(line, curve(line.experiment, kind)) for line in shown(experiments)]
    name = kind.y_label
    if any(run.validated for e in experiments for run in e.runs):
        name = name.replace("test accuracy", "validation accuracy")
    axes.set(title=panel, xlabel=kind.x_label, ylabel=name, yscale="log" if kind.log else "linear")
    if not kind.log:
        axes.set_ylim(*(ylim or window([points for _, points in curves])))
    for line, (x, mean, spread) in curves:
        below = not kind.log and mean.max() < axes.get_ylim()[0]
        name = f"{line.label} (below, {mean.max():.2f})" if below else line.label
        (drawn,) = axes.plot(x, mean, line.style, color=line.colour, label=name, linewidth=1.8)
        drawn.set(marker=line.marker, markersize=4.5, markevery=max(1, len(x) // MARKS))
        if not below:  # its band would cover the others
            axes.fill_between(x, mean - spread, mean + spread, color=line.colour, alpha=0.2, linewidth=0)
    axes.grid(alpha=0.3)
    if len(curves) <= FEW:
        axes.legend(fontsize="small")
    else:  # below the panel: it would cover the curves
        axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


def in_format(figure: Figure, kind: str) -> bytes:
    """The figure in another of matplotlib's formats."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {})
    return stream.getvalue()


def png_and_svg(figure: Figure) -> tuple[bytes, str]:
    """The figure as two files; the same runs give the same bytes."""
    png, svg = io.BytesIO(), io.StringIO()
    figure.savefig(png, format="png", dpi=150)
    with mpl.rc_context({"svg.hashsalt": "fedmuon", "svg.fonttype": "none"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return png.getvalue(), svg.getvalue()
