import os
import tempfile
from collections.abc import Iterator

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "XDG_CACHE_HOME": tempfile.mkdtemp(prefix="tests-cache-"),  # read at import; this user's own stays as it is
}

import hypothesis
import pytest
import torch

from fedmuon_app.data.sources import DEBIAN_FASHION_MNIST

hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")


@pytest.fixture(autouse=True)
def _torchs_settings_as_they_were() -> Iterator[None]:
    """One thread, and every global setting of torch that a test may change put back after it."""
    torch.set_num_threads(1)
    backends = (torch.backends, torch.backends.mkldnn, torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)
    precisions = [backend.fp32_precision for backend in backends]
    flags = torch.backends.mkldnn.enabled, torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    deterministic, anomaly = torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()
    dtype, drawn, gradients = torch.get_default_dtype(), torch.get_rng_state(), torch.is_grad_enabled()
    yield
    torch.set_num_threads(1)
    for backend, precision in zip(backends, precisions, strict=True):
        backend.fp32_precision = precision
    torch.backends.mkldnn.enabled, torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags
    torch.use_deterministic_algorithms(deterministic)
    torch.set_default_dtype(dtype)
    torch.set_rng_state(drawn)
    torch.set_grad_enabled(gradients)
    torch.autograd.set_detect_anomaly(anomaly)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {
        "gpu": None if torch.cuda.is_available() else "no CUDA device",
        "data": None if DEBIAN_FASHION_MNIST.is_dir() else "Debian's dataset-fashion-mnist is not installed",
    }
    for item in items:
        for name, reason in reasons.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))
