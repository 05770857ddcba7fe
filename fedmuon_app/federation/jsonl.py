"""Logs of a line of JSON a round, which a resume cuts back."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fedmuon_app.disk import write_whole


def until(file: Path, rounds: int) -> tuple[list[dict[str, Any]], int]:
    """The lines of JSON in ``file`` up to that round, and the byte after them; a last line that is cut off is none."""
    lines: list[dict[str, Any]] = []
    end = 0
    with suppress(FileNotFoundError), file.open("rb") as stream:
        for raw in stream:
            if not raw.endswith(b"\n") or (line := json.loads(raw))["round"] > rounds:
                break
            lines.append(line)
            end += len(raw)
    return lines, end


def cut(file: Path, end: int) -> IO[str]:
    """Open ``file`` to append to, without what stands after byte ``end``: a new file then, for those who follow it."""
    if file.exists() and file.stat().st_size > end:
        with file.open("rb") as stream:
            write_whole(file, stream.read(end), 0o666)
    return file.open("a", encoding="utf-8")


def dumped(line: Mapping[str, Any]) -> str:
    """As JSON, which has no NaN and no infinity: null stands for them."""
    known = {k: None if isinstance(x, float) and not math.isfinite(x) else x for k, x in line.items()}
    return json.dumps(known, allow_nan=False)


def print_line(stream: IO[str], line: Mapping[str, Any]) -> None:
    """Add a line to a file."""
    print(dumped(line), file=stream, flush=True)
