"""A run's folder is one process's at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from fedmuon_app.errors import InputError
from fedmuon_app.federation.folder import CHECKPOINT, LOCK, METRICS, RESULT


def take(folder: Path, resume: bool) -> IO[bytes]:
    """Take ``folder`` for a run of this process, until the file that is returned is closed or the process ends.

    Raises:
        InputError: it cannot be had, another process is writing there, or it holds a run that is not to be, or
            cannot be, resumed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder / LOCK)
    except BlockingIOError:
        raise InputError(f"run_dir = {folder}: another process is writing a run there") from None
    except OSError as error:
        raise InputError(f"run_dir = {folder}: it cannot be written ({error})") from error
    if (folder / METRICS).exists() and not resume:
        raise InputError(f"run_dir = {folder} holds a run already: choose another folder, or go on with resume")
    if (folder / RESULT).exists() and not (folder / CHECKPOINT).exists():
        raise InputError(f"resume = {folder}: the run there is complete, and has no checkpoint to go on from")
    return lock


def _locked(file: Path) -> IO[bytes]:
    """The file, locked.

    Raises:
        BlockingIOError: another process has it locked.
    """
    while True:
        lock = file.open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), file.stat()):
                return lock
        lock.close()  # whoever had it has taken the file away meanwhile
