"""``fedmuon-report --watch``: the page of runs that are going on, made anew when one of them has something new."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from threading import Lock

from fedmuon_app.errors import InputError
from fedmuon_app.federation.folder import FAILED, LOCK, METRICS, RESULT, SWEEP, sweep_of
from fedmuon_app.report.figure import png_and_svg
from fedmuon_app.report.figures import figures
from fedmuon_app.report.files import read_runs, refuse_missing
from fedmuon_app.report.page import page
from fedmuon_app.report.runs import Run, Series, experiments
from fedmuon_app.report.table import Row, Table, tables

REFRESH = 10  # seconds between a browser's looks


def serve(folders: Sequence[Path], port: int, methods: Callable[[Sequence[Run]], list[Run]]) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C.

    Args:
        folders: as of the report.
        port: 0: a free one.
        methods: chooses among the runs.

    Raises:
        InputError: a folder is not there, or the port cannot be had.
    """
    refuse_missing(folders)
    lock, seen, last = Lock(), "", ""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal seen, last
            if self.path != "/":
                self.send_error(404)
                return
            with lock:
                now = state(folders)
                if now != seen:
                    seen, last = now, html(folders, methods)
            body = last.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Not every look."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be had on 127.0.0.1 ({error})") from error
    with server:
        place, shown = f"http://127.0.0.1:{server.server_address[1]}/", ", ".join(map(str, folders))
        print(f"{place} shows {shown}; Ctrl-C ends", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def state(folders: Sequence[Path]) -> str:
    """Changes when one of the runs has something new."""
    files = [file for folder in folders for name in (METRICS, RESULT, FAILED) for file in folder.rglob(name)]
    return repr(sorted((str(file), file.stat().st_mtime_ns) for file in files if file.exists()))


def html(folders: Sequence[Path], methods: Callable[[Sequence[Run]], list[Run]]) -> str:
    """The page of all runs that have an evaluation; runs that are going on come first."""
    runs = methods([run for run in read_runs(folders, going=True) if run.lines or run.failed])
    if not runs:
        return f'<!doctype html><meta http-equiv="refresh" content="{REFRESH}"><p>No run has an evaluation yet.</p>'
    found = experiments(runs)
    how_far = going(found, sweeps(folders, runs))  # before figures take their time: runs end meanwhile
    svgs = {kind: png_and_svg(figure)[1] for kind, figure in figures(found).items()}
    return page(
        found,
        [how_far, *tables(found)],
        svgs,
        folders[0].absolute(),
        datetime.now(),
        REFRESH,
    )


def going(experiments: Sequence[Series], sweeps: Sequence[str] = ()) -> Table:
    """How far the runs are that are not complete; ``sweeps`` are sentences on whole sweeps."""
    rows, total = [], 0
    for e in experiments:
        total += len(e.all_runs)
        for run in (run for run in e.all_runs if run.result.get("going")):
            last, rounds = run.lines[-1], int(run.config["rounds"])
            left = str(timedelta(seconds=round(_whole(run) - last["seconds"]))) if _is_training(run) else "stopped"
            now = "" if last[run.metric] is None else f"{last[run.metric]:.4f}"
            cells = [f"{last['round']} of {rounds}", now, f"{_speed(run):.2f}", left]
            rows.append(Row([e.panel, e.name, e.settings, str(run.config["seed"]), *cells], [run]))
    looks = f"{len(rows)} of {total} runs are going on, or were stopped; the page looks again every {REFRESH} s."
    columns = ("data", "method", "settings", "seed", "round", "now", "rounds/s", "left")
    return Table("going", "Going on", " ".join([looks, *sweeps]), columns, rows)


def sweeps(folders: Sequence[Path], runs: Sequence[Run]) -> list[str]:
    """Of each sweep in these folders how far it is, and how long it will take if it goes on as now."""
    said = []
    for file in sorted({file.resolve() for folder in folders for file in folder.rglob(SWEEP)}):
        place = file.parent
        total, *_ = sweep_of(place)
        begun = [run for run in runs if run.folder.parent == place]
        now = [run for run in begun if run.result.get("going") and _is_training(run)]
        ended = [run for run in begun if not run.result.get("going")]
        text = f"{place.name}: {len(ended)} of {total} runs have ended"
        if now:
            typical = fmean(_whole(run) for run in begun if run.lines)
            rest = -(-max(0, total - len(ended) - len(now)) // len(now)) * typical
            left = max(_whole(run) - run.lines[-1]["seconds"] for run in now) + rest
            text += f", {timedelta(seconds=round(left))} left"
        said.append(f"{text}.")
    return said


def _is_training(run: Run) -> bool:
    return (run.folder / LOCK).exists()


def _speed(run: Run) -> float:
    """Rounds a second."""
    last = run.lines[-1]
    return float(last["round"]) / max(float(last["seconds"]), 1e-9)


def _whole(run: Run) -> float:
    """Seconds of a run from its first round to its last, or to where it ended."""
    rounds = int(run.config["rounds"]) if run.result.get("going") else run.lines[-1]["round"]
    return float(rounds / _speed(run))
