"""What all commands do before they print."""

import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO


class _Overheard(io.FileIO):
    """A stream whose reader may leave (``| head``): what nobody reads is dropped, and the program goes on."""

    def write(self, data: Any, /) -> int:
        """The number of bytes, written or not."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def tolerate() -> None:
    """Let neither the terminal's encoding nor a reader who leaves, or was never there, end the program.

    Characters that the encoding does not have are written as escapes.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:  # it was closed (>&-), and the next file would get its number
            stream = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the program runs
            setattr(sys, name, stream)
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            heard = io.BufferedWriter(_Overheard(stream.fileno(), "w", closefd=False))
            stream = io.TextIOWrapper(heard, stream.encoding, line_buffering=bool(stream.line_buffering))
            setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
