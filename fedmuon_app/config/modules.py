"""The module that ``model._target_`` names: built here for its owner, and at a node only if that allows it."""

import functools
import importlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from hydra.utils import instantiate

from fedmuon_app.config.files import conf_dir, names
from fedmuon_app.errors import InputError


def build_module(node: dict[str, Any]) -> Any:
    """What ``model._target_`` names, called with the other keys.

    Raises:
        InputError: there is no such thing, or it refuses the arguments.
    """
    try:
        return instantiate(node)
    except HydraException as error:
        cause: BaseException = error.__cause__ or error
        missing = re.search(r"No module named '[^']+'", str(cause).replace("\\'", "'"))
        reason = " ".join(str(cause).split("\nfull_key")[0].split()) or type(cause).__name__
        if missing:
            reason = f"{missing[0]} (looked in the current folder, {Path.cwd()}, and among what is installed)"
        raise InputError(f"model._target_ = {node.get('_target_')} cannot be built: {reason}") from error


def refuse_others(node: dict[str, Any], allow: Collection[str]) -> None:
    """Refuse a model that a node does not allow, before anything of it is imported or called.

    Args:
        node: ``model``, as somebody else has it.
        allow: modules whose classes may be built beside the models of conf/.

    Raises:
        InputError: ``_target_`` is no model of conf/ and no torch module in one of the modules of ``allow``, or an
            argument is something to be built itself.
    """
    target = str(node.get("_target_"))
    if not _plain({key: value for key, value in node.items() if key != "_target_"}):
        raise InputError(f"model._target_ = {target}: its arguments must be plain values")
    if target in _ours():
        return
    module, _, name = target.rpartition(".")
    if module not in allow:
        raise InputError(
            f"model._target_ = {target}: the module {module} is not among those that this node allows beside the "
            "models of conf/ (`allow` of its configuration)"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"model._target_ = {target}: it is not there") from error
    from torch import nn

    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise InputError(f"model._target_ = {target}: it is no class of torch modules")


@functools.cache
def _ours() -> frozenset[str]:
    texts = [(conf_dir() / "model" / f"{name}.yaml").read_text() for name in names("model")]
    return frozenset(yaml.safe_load(text)["_target_"] for text in texts) - {"???"}


def _plain(value: Any) -> bool:
    """Whether nothing in an argument is something to be built, or a word to Hydra."""
    if isinstance(value, dict):
        return all(not str(key).startswith("_") and _plain(inner) for key, inner in value.items())
    return all(map(_plain, value)) if isinstance(value, list) else True
