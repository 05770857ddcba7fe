"""The ``fedmuon-report`` command."""

import argparse
import sys
from pathlib import Path

from fedmuon_app.errors import InputError
from fedmuon_app.report.figure import save
from fedmuon_app.report.runs import experiments, read_runs, unfinished
from fedmuon_app.report.table import markdown, to_csv


def main() -> None:
    """Read run folders, write table.md, table.csv, accuracy.png and accuracy.svg."""
    parser = argparse.ArgumentParser(prog="fedmuon-report", description=main.__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a run's folder, or one above several")
    parser.add_argument("--out", type=Path, help="where to write (default: report/ in the first DIR)")
    args = parser.parse_args()
    try:
        found = experiments(read_runs(args.folders))
    except InputError as error:
        print(f"fedmuon-report: {error}", file=sys.stderr)
        sys.exit(2)
    for folder in unfinished(args.folders):
        print(f"left out, not finished: {folder}", file=sys.stderr)
    out = args.out or args.folders[0] / "report"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(markdown(found))
    (out / "table.csv").write_text(to_csv(found))
    print(markdown(found))
    for file in (out / "table.md", out / "table.csv", *save(found, out)):
        print(file)
