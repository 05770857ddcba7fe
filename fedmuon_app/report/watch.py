"""``fedmuon-report --watch``: the page of runs that are going on, made anew when one of them has something new."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from fedmuon_app.federation.folder import FAILED, METRICS, RESULT
from fedmuon_app.report.figure import draw, drawable, png_and_svg
from fedmuon_app.report.files import read_runs
from fedmuon_app.report.page import page
from fedmuon_app.report.runs import Run, experiments
from fedmuon_app.report.table import Row, Table, tables

REFRESH = 10  # seconds between a browser's looks


def serve(folders: Sequence[Path], port: int, methods: Callable[[Sequence[Run]], list[Run]]) -> None:
    """Serve the page on 127.0.0.1 until Ctrl-C.

    Args:
        folders: as of the report.
        port: 0: a free one.
        methods: chooses among the runs.
    """
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

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
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
    """The page of all runs that have an evaluation, those that are going on first."""
    runs = methods([run for run in read_runs(folders, going=True) if run.lines or run.failed])
    if not runs:
        return f'<!doctype html><meta http-equiv="refresh" content="{REFRESH}"><p>No run has an evaluation yet.</p>'
    found = experiments(runs)
    svgs = {kind: png_and_svg(draw(some, kind))[1] for kind, some in drawable(found).items()}
    return page(found, [going(runs), *tables(found)], svgs, folders[0].absolute(), datetime.now(), REFRESH)


def going(runs: Sequence[Run]) -> Table:
    """How far the runs are that are not complete."""
    rows = []
    for run in runs:
        if not run.result.get("going"):
            continue
        last, rounds = run.lines[-1], int(run.config["rounds"])
        speed = last["round"] / max(last["seconds"], 1e-9)
        left = timedelta(seconds=round((rounds - last["round"]) / speed))
        accuracy = f"{last['test_accuracy']:.4f}"
        rows.append(Row([run.folder.name, f"{last['round']} of {rounds}", accuracy, f"{speed:.2f}", str(left)], [run]))
    caption = f"{len(rows)} of {len(runs)} runs are going on, or were stopped; the page looks again every {REFRESH} s."
    return Table("going", "Going on", caption, ("run", "round", "accuracy", "rounds/s", "left"), rows)
