"""conf/, what lies in it, and keys with dots."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml


def conf_dir() -> Path:
    """conf/: inside the package when it was installed from a wheel, beside it in a clone or in a FAB."""
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


@functools.cache
def names(group: str) -> tuple[str, ...]:
    """The choices of a group, sorted: the names of its files."""
    return tuple(sorted(file.stem for file in (conf_dir() / group).glob("*.yaml")))


def choice(group: str, name: str) -> dict[str, Any]:
    """What conf/ has for a choice of a group, as it stands there; nothing where the choice is somebody's own."""
    if name not in names(group):
        return {}
    return yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())


def belongs(key: str, groups: Sequence[str]) -> bool:
    """Whether a dotted key is one of ``groups``, or lies below one."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(cast(Mapping[str, Any], value), f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
