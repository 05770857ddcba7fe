import threading
import time

import pytest
import torch
from torch.backends.mkldnn import matmul

from fedmuon_app.algorithms import precision
from fedmuon_app.algorithms.precision import true_float32

SMALL, LARGE = torch.ones(6, 25), torch.ones(120, 400)


@pytest.mark.parametrize("units", [False, True])  # for bfloat16, in the processor
@pytest.mark.parametrize("before", ["none", "ieee", "tf32", "bf16"])
def test_bfloat16_is_allowed_only_where_that_changes_no_number(
    before: str, units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_bfloat16_is_float32", lambda: not units)
    matmul.fp32_precision = before
    for X, wanted in ((SMALL, "ieee"), (LARGE, "ieee" if units else "bf16"), (LARGE.double(), before)):
        with true_float32(X):
            assert matmul.fp32_precision == wanted
        assert matmul.fp32_precision == before


def test_an_error_inside_restores_the_setting_too() -> None:
    matmul.fp32_precision = "tf32"
    with pytest.raises(ZeroDivisionError), true_float32(SMALL):
        raise ZeroDivisionError
    assert matmul.fp32_precision == "tf32"


def test_what_somebody_sets_meanwhile_stays() -> None:
    matmul.fp32_precision = "bf16"
    with true_float32(SMALL):
        matmul.fp32_precision = "tf32"
    assert matmul.fp32_precision == "tf32"


def test_threads_that_need_different_settings_have_them_and_leave_none_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_bfloat16_is_float32", lambda: True)
    matmul.fp32_precision = "tf32"
    wrong = []

    def work(X: torch.Tensor, wanted: str) -> None:
        for _ in range(200):
            with true_float32(X):
                wrong.extend(matmul.fp32_precision for _ in range(3) if matmul.fp32_precision != wanted)
                time.sleep(0)

    threads = [threading.Thread(target=work, args=experiment) for experiment in [(SMALL, "ieee"), (LARGE, "bf16")] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert matmul.fp32_precision == "tf32"
    assert not precision._loans


def test_the_trial_of_the_processor_leaves_the_setting() -> None:
    matmul.fp32_precision = "tf32"
    precision._bfloat16_is_float32.__wrapped__()
    assert matmul.fp32_precision == "tf32"
