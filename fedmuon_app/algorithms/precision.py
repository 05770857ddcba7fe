"""Torch's setting for float32 products, borrowed for a while and given back as it was, also among threads."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LARGE = 100  # rows from which oneDNN's products are quicker than torch.mm's, whose calls cost less


@dataclass
class _Loan:
    """One setting while somebody uses it: what it was, what it is now, and how many threads need that."""

    before: str
    now: str
    users: int = 0


_loans: dict[str, _Loan] = {}  # by device type
_returned = threading.Condition()


@contextmanager
def true_float32(X: Tensor) -> Iterator[None]:
    """Let products of matrices like ``X`` be in float32, whatever torch has been told; nothing for other dtypes.

    ``torch.set_float32_matmul_precision`` and ``torch.backends.….fp32_precision`` may allow TF32 on a GPU, and
    bfloat16 on a CPU that has units for it. On a CPU without these units, to allow it changes no number, but sends
    products of many rows to oneDNN, which with AVX-512 is twice as fast as torch.mm: so there it is allowed.

    The setting is the process's. Threads that need the same share it, one that needs another waits, and the last
    one restores what was there (unless somebody else has set it meanwhile). What torch.compile traces has no such
    moment: there the setting stays what torch has been told.
    """
    if X.dtype != torch.float32 or torch.compiler.is_compiling():
        yield
        return
    fast = not X.is_cuda and X.shape[-2] >= LARGE and _bfloat16_is_float32()
    with _borrowed(X.device.type, "bf16" if fast else "ieee"):
        yield


@contextmanager
def _borrowed(device: str, wanted: str) -> Iterator[None]:
    matmul = _matmul(device)
    with _returned:
        while device in _loans and _loans[device].now != wanted:
            _returned.wait()
        loan = _loans.setdefault(device, _Loan(matmul.fp32_precision, wanted))
        if not loan.users and loan.before != wanted:
            matmul.fp32_precision = wanted
        loan.users += 1
    try:
        yield
    finally:
        with _returned:
            loan.users -= 1
            if not loan.users:
                if loan.before != wanted and matmul.fp32_precision == wanted:
                    matmul.fp32_precision = loan.before
                del _loans[device]
                _returned.notify_all()


def _matmul(device: str) -> Any:
    """Torch's settings for products on this type of device."""
    backends: Any = torch.backends  # without types for mkldnn's part
    return backends.cuda.matmul if device == "cuda" else backends.mkldnn.matmul


@functools.cache
def _bfloat16_is_float32() -> bool:
    """Whether a product on this CPU with bfloat16 allowed is as near to float64 as without; tried once a process."""
    A = torch.linspace(-1, 1, 256 * 256).sin().view(256, 256)
    exact, errors = A.double() @ A.double(), []
    for precision in ("ieee", "bf16"):
        with _borrowed("cpu", precision):
            errors.append(float((A @ A - exact).norm()))
    return errors[1] <= 2 * errors[0]
