"""conf/, and what lies in it."""

import functools
from pathlib import Path


def conf_dir() -> Path:
    """conf/: inside the package when it was installed from a wheel, beside it in a clone or in a FAB."""
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


@functools.cache
def names(group: str) -> tuple[str, ...]:
    """The choices of a group, sorted: the names of its files."""
    return tuple(sorted(file.stem for file in (conf_dir() / group).glob("*.yaml")))
