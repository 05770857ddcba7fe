"""The ``fedmuon-theory`` command: the paper's theorems, measured and drawn."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from rich.console import Console
from rich.table import Table

from fedmuon_app.terminal import tolerate
from fedmuon_app.theory import speedup, theorem_1, theorem_3

EXPERIMENTS: dict[str, ModuleType] = {"theorem-1": theorem_1, "theorem-3": theorem_3, "speedup": speedup}


def main() -> None:
    """Measure a theorem: a table here, NAME.csv and NAME.png in DIR."""
    parser = argparse.ArgumentParser(prog="fedmuon-theory", description=main.__doc__)
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"])
    parser.add_argument("--out", type=Path, default=Path("theory"), metavar="DIR", help="default: theory")
    tolerate()
    args = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    args.out.mkdir(parents=True, exist_ok=True)
    for name in EXPERIMENTS if args.name == "all" else [args.name]:
        experiment = EXPERIMENTS[name]
        result = experiment.measure()
        rows = experiment.table(result)
        show(str(experiment.__doc__).splitlines()[0], rows)
        files = args.out / f"{name}.csv", args.out / f"{name}.png"
        with files[0].open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        experiment.draw(result).savefig(files[1], dpi=150)
        print(*files, sep="\n")


def show(title: str, rows: Sequence[dict[str, object]]) -> None:
    """Print the rows."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
