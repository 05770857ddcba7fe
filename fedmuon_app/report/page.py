"""The page of a report: one HTML file that needs nothing else."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from fedmuon_app.report.figure import Kind
from fedmuon_app.report.runs import Run, Series
from fedmuon_app.report.table import Table

INK = "#000000"  # matplotlib's; on the page it is the text's colour, light or dark


def page(
    experiments: Sequence[Series],
    tables: Sequence[Table],
    figures: Mapping[Kind, str],
    folder: Path,
    made: datetime,
    refresh: int | None = None,
) -> str:
    """The HTML.

    Args:
        experiments: all that is reported.
        tables: each cell's row links to the runs that it was computed from.
        figures: SVG texts.
        folder: where the page will lie: links to run folders are relative to it.
        made: when.
        refresh: seconds after which a browser is to look again; None: never.
    """
    runs = list(dict.fromkeys(run.folder for e in experiments for run in e.all_runs))
    number = {folder: i for i, folder in enumerate(runs, start=1)}
    above = Path(os.path.commonpath([run.parent for run in runs]))
    entries = [
        (
            *(number[run.folder], run, e),
            _link(run, folder) if run.folder.is_dir() else "",  # of an archive's runs there is no folder
            run.folder.relative_to(above).as_posix(),
        )
        for e in experiments
        for run in e.all_runs
    ]
    environment = Environment(
        loader=PackageLoader("fedmuon_app.report", "."),
        autoescape=select_autoescape(),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        refresh=refresh,
        made=f"{made:%Y-%m-%d %H:%M}",
        archives=sorted({_link(run, folder) for e in experiments for run in e.all_runs if not run.folder.is_dir()}),
        tables=tables,
        figures=[(kind, Markup(inline(svg, kind.name))) for kind, svg in figures.items()],
        entries=sorted(entries, key=lambda entry: entry[0]),
        number=number,
        panels=list(dict.fromkeys(e.panel for e in experiments)),
    )


def inline(svg: str, name: str) -> str:
    """An SVG file's text as an element of a page: ink in the page's colour, no ground, ids of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
    for before, after in ((' id="', f' id="{name}-'), ("url(#", f"url(#{name}-"), ('href="#', f'href="#{name}-')):
        svg = svg.replace(before, after)
    svg = svg.replace("fill: #ffffff", "fill: none").replace(INK, "currentColor")
    return re.sub(r"(<text [^>]*style=\")", r"\1fill: currentColor; ", svg)


def _link(run: Run, folder: Path) -> str:
    """Where the run lies, seen from the page: its folder, or the folder of its archive."""
    there = next(place for place in (run.folder, *run.folder.parents) if place.is_dir())
    return Path(os.path.relpath(there, folder.resolve())).as_posix()
