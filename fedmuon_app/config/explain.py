"""One sentence for what Hydra and OmegaConf say in many lines."""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.errors import ConfigCompositionException, MissingConfigException

from fedmuon_app.config.schema import Config


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """One sentence for what Hydra or OmegaConf say in many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, choice = error.missing_cfg_file.partition("/")
        return f"{group} = {choice} is unknown: choose one of {', '.join(error.options)}"
    if isinstance(error, ConfigCompositionException) and error.__cause__ is not None:
        match = re.search(r"(?:Could not override|Error merging override|Could not append) '?([^'=\s]+)", lines[0])
        key = match[1].rstrip(".") if match else ""
        cause = str(error.__cause__).splitlines()[0]
        if cause.startswith("Key '"):
            return f"{key} is no key: {_allowed(key)}"
        return f"{key}: {cause}" if key else f"{lines[0]}: {cause}"
    if any("," in word for word in overrides) and "mbiguous" in lines[0]:
        return f"{lines[0].rstrip('.')}: add -m to run every value, or quote the comma"
    return " ".join(lines)


def _allowed(key: str) -> str:
    """The keys that stand where ``key`` was looked for."""
    node: Any = Config
    where = []
    for part in key.split(".")[:-1]:
        kinds = {f.name: f.type for f in fields(node)} if is_dataclass(node) else {}
        if part not in kinds:
            break
        node = kinds[part]
        where.append(part)
    if not is_dataclass(node):
        return f"to add it, write +{key}"
    return f"{'.'.join(where) or 'the top level'} has {', '.join(f.name for f in fields(node))}"
