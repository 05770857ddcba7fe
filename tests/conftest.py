import os
import tempfile

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
def _one_thread() -> None:
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {
        "gpu": None if torch.cuda.is_available() else "no CUDA device",
        "data": None if DEBIAN_FASHION_MNIST.is_dir() else "Debian's dataset-fashion-mnist is not installed",
    }
    for item in items:
        for name, reason in reasons.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))
