"""The ``fedmuon-report`` command."""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from fedmuon_app.errors import InputError
from fedmuon_app.report.figure import in_format, png_and_svg
from fedmuon_app.report.figures import NAMES, figures
from fedmuon_app.report.files import archive, read_runs, unfinished
from fedmuon_app.report.page import page
from fedmuon_app.report.runs import Run, Series, experiments
from fedmuon_app.report.table import markdown, tables, to_csv
from fedmuon_app.report.watch import serve
from fedmuon_app.terminal import tolerate


def main() -> None:
    """From run folders to tables (Markdown, CSV), figures (PNG, SVG) and one page with both, index.html."""
    parser = argparse.ArgumentParser(prog="fedmuon-report", description=main.__doc__)
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, one above several, or one of an archive"
    )
    parser.add_argument("--out", type=Path, help="where to write (default: report/ in the first DIR)")
    parser.add_argument(
        "--archive", type=Path, metavar="DIR", help="also write the runs there as two small files, to be reported from"
    )
    parser.add_argument("--methods", metavar="NAME,…", help="only these, e.g. fedmuon,localmuon")
    parser.add_argument("--metric", metavar="NAME,…", help="only these figures, e.g. accuracy,train_loss")
    parser.add_argument("--ylim", metavar="LOW,HIGH", type=_limits, help="what is shown of the accuracies' axis")
    parser.add_argument("--format", choices=("pdf", "eps"), help="also write each figure in this format, for a paper")
    parser.add_argument("--watch", action="store_true", help="serve the page on 127.0.0.1 while runs go on")
    parser.add_argument("--port", type=int, default=0, help="of --watch (default: a free one)")
    tolerate()
    args = parser.parse_args()
    try:
        if args.watch:
            serve(args.folders, args.port, lambda runs: of_methods(runs, args.methods))
            return
        runs = chosen(read_runs(args.folders), args.methods)
        check_metric(args.metric)
    except InputError as error:
        print(f"fedmuon-report: {error}", file=sys.stderr)
        sys.exit(2)
    for folder in unfinished(args.folders):
        print(f"left out, not finished: {folder}", file=sys.stderr)
    written = archive(runs, args.archive) if args.archive else []
    out = args.out or args.folders[0] / "report"
    try:
        written += write(experiments(runs), out, args.metric, args.ylim, args.format)
    except OSError as error:
        print(f"fedmuon-report: {out} cannot be written ({error}): name another folder with --out", file=sys.stderr)
        sys.exit(2)
    print("", *written, sep="\n")


def chosen(runs: Sequence[Run], methods: str | None) -> list[Run]:
    """Those of the methods named, or all.

    Raises:
        InputError: there is none of them.
    """
    there = sorted({str(run.config["algorithm.name"]) for run in runs})
    for name in (methods or "").split(",") if methods else ():
        if name not in there:
            raise InputError(f"--methods {name}: the runs are of {', '.join(there)}")
    return of_methods(runs, methods)


def of_methods(runs: Sequence[Run], methods: str | None) -> list[Run]:
    """Those of the methods named, or all."""
    return [run for run in runs if methods is None or run.config["algorithm.name"] in methods.split(",")]


def check_metric(metric: str | None) -> None:
    """Refuse names of figures that there are not.

    Raises:
        InputError: names them.
    """
    for name in (metric or "").split(",") if metric else ():
        if name not in NAMES:
            raise InputError(f"--metric {name}: must be among {', '.join(NAMES)}")


def _limits(text: str) -> tuple[float, float]:
    low, high = map(float, text.split(","))
    return low, high


def write(
    found: Sequence[Series],
    out: Path,
    metric: str | None = None,
    ylim: tuple[float, float] | None = None,
    also: str | None = None,
) -> list[Path]:
    """Print the tables, and write all files of a report; their paths, the page first.

    Args:
        found: what it is of.
        out: the folder for its files.
        metric: names of figures, with commas; None: all.
        ylim: of the accuracies; None: where curves can be told apart.
        also: a further format of the figures.
    """
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str | bytes] = {}
    svgs = {}
    for kind, figure in figures(found, None if metric is None else metric.split(","), ylim).items():
        png, svgs[kind] = png_and_svg(figure)
        files |= {f"{kind.name}.png": png, f"{kind.name}.svg": svgs[kind]}
        if also:
            files[f"{kind.name}.{also}"] = in_format(figure, also)
    made = tables(found)
    text = "\n".join(markdown(table) for table in made)
    print(text)
    files = {"index.html": page(found, made, svgs, out, datetime.now()), "tables.md": text, **files}
    files |= {f"{table.name}.csv": to_csv(table) for table in made}
    for name, content in files.items():
        (out / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return [out / name for name in files]
