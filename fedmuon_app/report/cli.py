"""The ``fedmuon-report`` command."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedmuon_app.errors import InputError
from fedmuon_app.report.figure import draw, drawable, png_and_svg
from fedmuon_app.report.files import archive, read_runs, unfinished
from fedmuon_app.report.page import page
from fedmuon_app.report.runs import Experiment, experiments
from fedmuon_app.report.table import markdown, tables, to_csv


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
    args = parser.parse_args()
    try:
        runs = read_runs(args.folders)
    except InputError as error:
        print(f"fedmuon-report: {error}", file=sys.stderr)
        sys.exit(2)
    for folder in unfinished(args.folders):
        print(f"left out, not finished: {folder}", file=sys.stderr)
    written = archive(runs, args.archive) if args.archive else []
    written += write(experiments(runs), args.out or args.folders[0] / "report")
    print("", *written, sep="\n")


def write(found: Sequence[Experiment], out: Path) -> list[Path]:
    """Print the tables, and write all files of a report; their paths, the page first."""
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str | bytes] = {}
    svgs = {}
    for kind, some in drawable(found).items():
        png, svgs[kind] = png_and_svg(draw(some, kind))
        files |= {f"{kind.name}.png": png, f"{kind.name}.svg": svgs[kind]}
    made = tables(found)
    text = "\n".join(markdown(table) for table in made)
    print(text)
    files = {"index.html": page(found, made, svgs, out), "tables.md": text, **files}
    files |= {f"{table.name}.csv": to_csv(table) for table in made}
    for name, content in files.items():
        (out / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return [out / name for name in files]
