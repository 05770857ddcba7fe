"""Files that are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace ``file`` at once or not at all; it is on the disk when this returns. By default its owner's alone.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, file)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
