"""The table of a report: Markdown and CSV."""

import csv
import io
import statistics
from collections.abc import Sequence

from fedmuon_app.report.runs import Experiment

COLUMNS = ("data", "method", "settings", "seeds", "rounds", "final accuracy", "± std", "best", "MB up", "MB down", "s")


def rows(experiments: Sequence[Experiment]) -> list[list[str]]:
    """A row an experiment: means over its seeds; the spread is the sample standard deviation.

    Accuracies are those of the last and of the best evaluation of a run; s is its time on its machine.
    """
    table = []
    for e in experiments:
        results = [run.result for run in e.runs]
        final = [float(r["final_accuracy"]) for r in results]

        def mean(key: str, results: Sequence[object] = results) -> float:
            return statistics.mean(float(r[key]) for r in results)  # type: ignore[index]

        table.append(
            [
                e.panel,
                e.method,
                e.settings,
                " ".join(str(r["seed"]) for r in results),
                " ".join(sorted({str(r["rounds"]) for r in results})),
                f"{statistics.mean(final):.4f}",
                f"{statistics.stdev(final):.4f}" if len(final) > 1 else "",
                f"{mean('best_accuracy'):.4f}",
                f"{mean('bytes_up') / 1e6:.1f}",
                f"{mean('bytes_down') / 1e6:.1f}",
                f"{mean('seconds'):.0f}",
            ]
        )
    return table


def markdown(experiments: Sequence[Experiment]) -> str:
    """A table in GitHub's Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows(experiments)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def to_csv(experiments: Sequence[Experiment]) -> str:
    """The same as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *rows(experiments)])
    return text.getvalue()
