"""One sentence for what Hydra and OmegaConf say in many lines."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config.schema import Config

COMPOSING = (HydraException, OmegaConfBaseException, TypeError, AttributeError)  # the last two are Hydra's own stumbles
EXTRAS = {  # what is no choice of a group until it is installed
    "hydra/sweeper/optuna": "optuna",
    "hydra/launcher/ray": "cluster",
    "hydra/launcher/ray_aws": "cluster",
    "hydra/launcher/submitit_local": "submitit",
    "hydra/launcher/submitit_slurm": "submitit",
}


def explain(error: Exception, overrides: Sequence[str]) -> str:
    """One sentence for an error of composing a configuration with ``overrides``."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _unknown_choice(error)
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, lines)
    cause = str(error.__cause__ or error).splitlines() or lines
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", "\n".join(cause)):
        return f"{_full_key(cause) or missing[1]} is not given: set {_full_key(cause) or missing[1]}=…"
    if unknown := re.search(r"Key '([^']+)' (?:is )?not in '(\w+)'", "\n".join([*lines, *cause])):
        return unknown_key(_full_key([*cause, *lines]) or _place(unknown[2]) + unknown[1])
    if isinstance(error, ConfigCompositionException) and error.__cause__ is not None:
        match = re.search(r"(?:Could not override|Error merging override|Could not append) '?([^'=\s]+)", lines[0])
        key = match[1].rstrip(".") if match else ""
        if cause[0].startswith("Key '"):
            return unknown_key(key)
        return f"{key}: {cause[0]}" if key else f"{lines[0]}: {cause[0]}"
    if any("," in word for word in overrides) and "mbiguous" in lines[0]:
        return f"{lines[0].rstrip('.')}: add -m to run every value, or quote the comma"
    if isinstance(error, (TypeError, AttributeError)) and overrides:
        return (
            f"{' '.join(overrides)}: Hydra cannot compose that ({lines[0]}); is one of them no single word or number?"
        )
    words = [line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type="))]
    key = _full_key(lines)
    return (f"{key}: " if key and key not in words[0] else "") + " ".join(words)


def unknown_key(key: str) -> str:
    """The sentence for a key that is not there: which keys are."""
    *above, last = key.split(".")
    node: Any = Config
    where = []
    for part in above:
        kinds = {f.name: f.type for f in fields(node)} if is_dataclass(node) else {}
        if part not in kinds:
            break
        node = kinds[part]
        where.append(part)
    if not is_dataclass(node):
        return f"{key} is no key: to add it, write +{key}"
    there = [f.name for f in fields(node)]
    near = [".".join([*where, name]) for name in difflib.get_close_matches(last, there, n=1)]
    near += [other for other in _keys() if other.split(".")[-1] == last]
    near += difflib.get_close_matches(key, list(_keys()), n=1)
    guess = f" (do you mean {near[0]}?)" if near else ""
    return f"{key} is no key{guess}: {'.'.join(where) or 'the top level'} has {', '.join(there)}"


def _place(name: str, node: Any = Config, prefix: str = "") -> str:
    """Where in a configuration the dataclass of that name stands: "algorithm.lmo."; empty for the top level."""
    for f in fields(node):
        if is_dataclass(f.type):
            here = f"{prefix}{f.name}."
            if found := here if getattr(f.type, "__name__", "") == name else _place(name, f.type, here):
                return found
    return ""


def _keys(node: Any = Config, prefix: str = "") -> Iterator[str]:
    for f in fields(node):
        yield prefix + f.name
        if is_dataclass(f.type):
            yield from _keys(f.type, f"{prefix}{f.name}.")


def _full_key(lines: Sequence[str]) -> str:
    return next((line.split("full_key:")[1].strip() for line in lines if "full_key:" in line), "")


def _unknown_choice(error: MissingConfigException) -> str:
    missing = str(error.missing_cfg_file)
    group, _, choice = missing.rpartition("/")
    options = list(error.options or ())
    if extra := EXTRAS.get(missing):
        return f"{group} = {choice} is not installed: pip install 'fedmuon-app[{extra}]'"
    if not options:
        return f"{missing} is not to be found: {str(error).splitlines()[0]}"
    near = difflib.get_close_matches(choice, options, n=1)
    guess = f" (do you mean {near[0]}?)" if near else ""
    return f"{group} = {choice} is unknown{guess}: choose one of {', '.join(options)}"


def _unreadable(word: str, lines: Sequence[str]) -> str:
    key, equals, value = word.partition("=")
    if not equals:
        return f"{word} is no override: write key=value (fedmuon --help has the keys)"
    reason = lines[0].removesuffix(".")
    return f'{word} cannot be read ({reason}): in your shell, quote the value twice: "{key}={in_quotes(value)}"'


def in_quotes(value: str) -> str:
    """A value as Hydra reads it whatever characters are in it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
