"""What a process that trains is told once: its threads, and to keep the memory that it frees."""

import ctypes
import sys

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt(3)
LARGEST = 32 * 2**20  # bytes that glibc agrees to take from the heap
KEPT = 2**30


def prepare(threads: int) -> None:
    """Set torch's threads and, on glibc, malloc's thresholds.

    By default glibc gives every freed activation back to the system and takes a new one for the next
    step, page by page: a tenth of LeNet's gradient went to that (docs/performance.md).
    """
    torch.set_num_threads(threads)
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every C library
        if mallopt is not None:
            mallopt(M_MMAP_THRESHOLD, LARGEST)
            mallopt(M_TRIM_THRESHOLD, KEPT)
