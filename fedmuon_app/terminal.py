"""What all commands do before they print."""

import sys


def tolerate() -> None:
    """Characters that the terminal's encoding does not have are written as escapes, instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
