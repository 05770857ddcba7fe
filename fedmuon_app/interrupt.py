"""Ctrl-C and SIGTERM: the run under way unwinds once and writes its checkpoint; runs that wait do not begin."""

import signal
import threading
import time
from types import FrameType

import psutil

AGAIN = 5.0  # seconds in which a second signal is taken for impatience: the first one is being answered


class Interrupt:
    """What this process does with the two signals, once :meth:`install` was called."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that has come
        self.hold = False  # take note of it, and raise nothing: no run of this process is under way
        self._came = 0.0

    def install(self) -> None:
        """Answer the signals from now on. Nothing in another thread than the main one."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._answer)

    @property
    def word(self) -> str:
        """What has happened: ``interrupted``, or ``terminated``."""
        return "terminated" if self.number == signal.SIGTERM else "interrupted"

    @property
    def status(self) -> int:
        """The exit status of a process that a signal ended, as a shell has it."""
        return 128 + (self.number or signal.SIGINT)

    def forward(self) -> None:
        """Tell the processes below this one, which a signal for this one alone does not reach."""
        for process in psutil.Process().children():
            if "loky" in " ".join(process.cmdline()):
                process.send_signal(self.number)

    def _answer(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        first, again = not self.number, now > self._came + AGAIN
        if not first and not again:
            return
        self.number, self._came = number, now
        if self.hold and first:
            self.forward()
            return
        raise KeyboardInterrupt


INTERRUPT = Interrupt()
