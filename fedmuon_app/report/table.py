"""The tables of a report, to be written as Markdown, CSV or HTML."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np

from fedmuon_app.config import load
from fedmuon_app.errors import InputError
from fedmuon_app.federation.diagnostics import MEASURES
from fedmuon_app.federation.judging import SPREAD
from fedmuon_app.report.confusion import counted
from fedmuon_app.report.runs import LAST, Run, Series, in_words, short

LEVELS = (0.80, 0.85, 0.88, 0.90)
STEP_SIZES = ("algorithm.lr", "algorithm.vector_lr", "algorithm.outer_lr")


@dataclass(frozen=True)
class Row:
    """Cells, and the runs that they were computed from."""

    cells: Sequence[str]
    runs: Sequence[Run]


@dataclass(frozen=True)
class Table:
    """A table with a name for its file, and a sentence that says how to read it."""

    name: str
    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]

    @property
    def filled(self) -> list[int]:
        """The columns that have anything in them."""
        return [j for j in range(len(self.columns)) if any(row.cells[j] for row in self.rows)]


def tables(experiments: Sequence[Series]) -> list[Table]:
    """All tables that these experiments have anything for."""
    made = (make(experiments) for make in (accuracy, losses, clients, recall, reached, step_sizes, diagnostics))
    return [table for table in made if table.rows]


def accuracy(experiments: Sequence[Series]) -> Table:
    """A row an experiment: means over its seeds, and the spread of the final accuracy."""
    return _results([e for e in experiments if e.metric == "test_accuracy"], "accuracy", "Accuracy")


def losses(experiments: Sequence[Series]) -> Table:
    """The same of tasks that go by their loss."""
    return _results([e for e in experiments if e.metric == "test_loss"], "loss", "Loss")


def _results(experiments: Sequence[Series], name: str, title: str) -> Table:
    rows = []
    for e in experiments:
        results = [run.result for run in e.runs]
        cells = [
            *(e.panel, e.name, e.settings),
            f"{e.final:.4f}" if e.runs else "",
            f"{stdev(run.final for run in e.runs):.4f}" if len(e.runs) > 1 else "",
            _mean(results, "final_accuracy" if name == "accuracy" else "final", "{:.4f}"),
            _mean(results, "best_accuracy" if name == "accuracy" else "best", "{:.4f}"),
            f"{len(e.failed)} of {len(e.all_runs)}" if e.failed else "",
            " ".join(str(run.config["seed"]) for run in e.runs),
            " ".join(sorted({str(r["rounds"]) for r in results})),
            _mean(results, "bytes_up", "{:.1f}", 1e6),
            _mean(results, "bytes_down", "{:.1f}", 1e6),
            _mean(results, "seconds", "{:.0f}"),
        ]
        rows.append(Row(cells, e.all_runs))
    columns = (
        *("data", "method", "settings", f"final {name}", "± std", "last", "best", "failed", "seeds", "rounds"),
        *("MB up", "MB down", "s"),
    )
    caption = (
        f"Final {name} is the mean of a run's last {LAST} evaluations; last and best are single ones. Means over "
        "seeds, of the runs that have not failed, with the sample standard deviation of it; s is the "
        "time on the run's machine."
    )
    return Table(name, title, caption, columns, rows)


def reached(experiments: Sequence[Series]) -> Table:
    """Rounds and megabytes (both ways) that each experiment needed for each accuracy that any has reached."""
    completed = [e for e in experiments if e.runs]
    levels = [x for x in LEVELS if any(run.reached(x) for e in completed for run in e.runs)]
    rows = []
    for e in completed:
        cells = [e.panel, e.name, e.settings]
        for level in levels:
            lines = [run.reached(level) for run in e.runs]
            there = [line for line in lines if line is not None]
            cells.append(_of_all(there, lines, lambda line: float(line["round"]), "{:.0f}"))
            cells.append(_of_all(there, lines, lambda line: (line["bytes_up"] + line["bytes_down"]) / 1e6, "{:.0f}"))
        rows.append(Row(cells, e.runs))
    columns = ["data", "method", "settings", *(f"{x:.0%}: {what}" for x in levels for what in ("rounds", "MB"))]
    caption = (
        "The first evaluated round with that accuracy, and the megabytes sent until then, up and down; means over "
        "the seeds that got there (in brackets how many, where not all)."
    )
    return Table("reached", "To reach an accuracy", caption, columns, rows if levels else [])


def step_sizes(experiments: Sequence[Series]) -> Table:
    """Where a method was tried with several step sizes: the best ones, beside the paper's."""
    grids: dict[tuple[str, str, str], list[Series]] = {}
    for e in experiments:
        other = in_words({key: value for key, value in e.own.items() if key not in STEP_SIZES})
        grids.setdefault((e.panel, e.method, other), []).append(e)
    rows = []
    for (panel, method, other), tried in grids.items():
        completed = [e for e in tried if e.runs]
        if len(tried) == 1 or not completed:
            continue
        best = max(completed, key=lambda e: (not e.failed, e.score))
        failed = sum(bool(e.failed) for e in tried)
        cells = [panel, best.name, other, str(best.config["rounds"]), str(len(tried)), str(failed or "")]
        cells += [_format(_numbers(best)), f"{best.final:.4f}", _edges(best, tried), *_papers(method, tried)]
        rows.append(Row(cells, [run for e in tried for run in e.all_runs]))
    columns = (
        "data",
        "method",
        "settings",
        "rounds",
        "tried",
        "failed",
        "best",
        "accuracy",
        "on the edge",
        "the paper's",
        "its accuracy",
    )
    caption = (
        "Of the step sizes that were tried, those with the best final accuracy (lr, vector_lr of what is no matrix, "
        "outer_lr of the server). Failed: how many of them a run diverged with, or broke off. On the edge: the largest "
        "or smallest tried, so a better one may lie beyond."
    )
    return Table("step_sizes", "Step sizes", caption, columns, rows)


def diagnostics(experiments: Sequence[Series]) -> Table:
    """What was measured beside the accuracy, at the end."""
    caption = (
        f"Means of the last {LAST} evaluations and over seeds: how far clients go in a round, the gradient of f over "
        "the examples that evaluation.diagnostics asked for, the bias of the LMO, and how far C is from that gradient."
    )
    return _measured(experiments, "diagnostics", "Diagnostics", caption, MEASURES)


def clients(experiments: Sequence[Series]) -> Table:
    """How well the clients are served, at the end."""
    caption = (
        f"Means of the last {LAST} evaluations and over seeds, of what the clients asked say of X on "
        "examples of their own that are not trained on."
    )
    return _measured(experiments, "clients", "Client by client", caption, SPREAD)


def recall(experiments: Sequence[Series]) -> Table:
    """Of each class what share is recognised, and what it is taken for otherwise."""
    rows = []
    for e in experiments:
        found = counted(e)
        if found is None:
            continue
        classes, counts = found
        for k, name in enumerate(classes):
            wrong = np.where(np.arange(len(classes)) == k, 0, counts[k])
            share, other = counts[k][k] / max(1, counts[k].sum()), classes[int(wrong.argmax())] if wrong.any() else ""
            rows.append(Row([e.panel, e.name, e.settings, name, f"{share:.3f}", other], e.runs))
    caption = "Of the test images of each class the share that is recognised, at the end; over seeds."
    return Table(
        "recall", "Class by class", caption, ("data", "method", "settings", "class", "recall", "else taken for"), rows
    )


def _measured(experiments: Sequence[Series], name: str, title: str, caption: str, keys: Mapping[str, str]) -> Table:
    """A column for each of these keys of metrics.jsonl."""
    rows = []
    for e in experiments:
        known = {key: [fmean(values) for run in e.runs if (values := run.last(key))] for key in keys}
        if any(known.values()):
            cells = [f"{fmean(values):.4g}" if values else "" for values in known.values()]
            rows.append(Row([e.panel, e.name, e.settings, *cells], e.runs))
    return Table(name, title, caption, ("data", "method", "settings", *keys.values()), rows)


def _papers(method: str, tried: Sequence[Series]) -> tuple[str, str]:
    """The paper's step sizes for this problem, and the accuracy that they had here."""
    config = tried[0].config
    steps = paper_steps(str(config["dataset.name"]), method, float(config["partition.beta"] or 0))
    if steps is None:
        return "", ""
    here = next((e for e in tried if _numbers(e) == (*steps, 1.0)), None)
    found = "not tried" if here is None else f"{here.final:.4f}" if here.runs else "failed"
    return _format((*steps, 1.0)), found


def _edges(best: Series, tried: Sequence[Series]) -> str:
    """Which of the best step sizes are the largest, or the smallest, of several that were tried."""
    found = []
    for key in STEP_SIZES:
        values = {e.config[key] for e in tried}
        for name, edge in (("largest", max), ("smallest", min)):
            if len(values) > 1 and best.config[key] == edge(values):
                found.append(f"{name} {short(key)}")
    return ", ".join(found)


@cache
def paper_steps(dataset: str, method: str, beta: float) -> tuple[float, float | None] | None:
    """Lr and vector_lr that the paper tuned (its appendix), from conf/; None where it has none."""
    half = {0.1: "heterogeneous", 10.0: "homogeneous"}.get(beta)
    try:
        a = load([f"experiment=paper/{dataset}_{half}", f"algorithm={method}"]).algorithm
    except InputError:
        return None
    return None if method == "muloco" else (a.lr, a.vector_lr)


def _numbers(e: Series) -> tuple[float | None, ...]:
    return tuple(e.config[key] for key in STEP_SIZES)


def _format(numbers: Sequence[float | None]) -> str:
    named = dict(zip(map(short, STEP_SIZES), numbers, strict=True))
    return ", ".join(f"{key}={x:g}" for key, x in named.items() if x is not None and (key, x) != ("outer_lr", 1.0))


def _mean(results: Sequence[Any], key: str, form: str, unit: float = 1.0) -> str:
    known = [float(r[key]) for r in results if r.get(key) is not None]
    return form.format(fmean(known) / unit) if known else ""


def _of_all(there: Sequence[Any], lines: Sequence[Any], value: Callable[[Any], float], form: str) -> str:
    if not there:
        return "–"
    mean = form.format(fmean(value(line) for line in there))
    return mean if len(there) == len(lines) else f"{mean} ({len(there)} of {len(lines)})"


def markdown(table: Table) -> str:
    """In GitHub's Markdown, with its title and caption; columns with nothing in them are left out."""
    lines = [table.columns, ["---"] * len(table.columns), *(row.cells for row in table.rows)]
    text = "".join("| " + " | ".join(line[j] for j in table.filled) + " |\n" for line in lines)
    return f"### {table.title}\n\n{table.caption}\n\n{text}"


def to_csv(table: Table) -> str:
    """As CSV, with a column of the run folders behind each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.columns, "runs"])
    writer.writerows([*row.cells, " ".join(str(run.folder) for run in row.runs)] for row in table.rows)
    return text.getvalue()
