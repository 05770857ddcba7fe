"""What the numbers of a run depend on beside its configuration: the versions of what ran."""

import functools
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("fedmuon-app", "flwr", "flwr-datasets", "hydra-core", "numpy", "ray", "torch", "torchvision")


@functools.cache
def versions() -> dict[str, str]:
    """By package; and, where the code runs from a clone, its commit ("-dirty": with changes)."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    at = commit(Path(__file__).resolve().parents[2])
    return found | ({"commit": at} if at else {})


def commit(root: Path) -> str | None:
    """The commit that is checked out in ``root``; None where that is no clone, or there is no git."""
    if not (root / ".git").exists():
        return None
    describe = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--match="]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
