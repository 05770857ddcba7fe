"""What ``_target_`` names, Hydra's way: built here for its owner, and at a node only if that allows it."""

import functools
import importlib
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.utils import instantiate

from fedmuon_app.config.files import choice, names
from fedmuon_app.config.schema import OWN, Config, Dataset, Partition
from fedmuon_app.errors import InputError


def build_target(key: str, node: dict[str, Any]) -> Any:
    """What ``node["_target_"]`` names, called with the other keys; ``key`` is the node's, for what is said.

    Raises:
        InputError: the target is not there, or refuses the arguments.
    """
    try:
        return instantiate(node, _convert_="all")  # plain dicts and lists, not OmegaConf's
    except HydraException as error:
        cause: BaseException = error.__cause__ or error
        if isinstance(cause, InputError):
            raise cause from error
        missing = re.search(r"No module named '[^']+'", str(cause).replace("\\'", "'"))
        reason = " ".join(str(cause).split("\nfull_key")[0].split()) or type(cause).__name__
        if missing:
            reason = f"{missing[0]} (looked in the current folder, {Path.cwd()}, and among what is installed)"
        raise InputError(f"{key}._target_ = {node.get('_target_')} cannot be built: {reason}") from error


def with_args(group: Dataset | Partition) -> dict[str, Any]:
    """What loads the data, or makes the partitioner, with its arguments."""
    return {"_target_": group._target_, **group.args}


def targets(c: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that a node would have to build by name for the server: its key, and what it says."""
    a = c.algorithm
    own = c.partition.name == OWN
    for key, node in (
        ("model", c.model),
        ("task", c.task),
        ("dataset", None if own else with_args(c.dataset)),
        ("partition", None if own else with_args(c.partition)),
        ("algorithm.step", a.step),
        ("algorithm.vector_step", a.vector_step),
        ("algorithm.schedule", a.schedule),
        ("algorithm.lmo.norm", a.lmo.norm),
    ):
        if isinstance(node, dict) and node.get("_target_") is not None:
            yield key, node


def refuse_others(key: str, node: dict[str, Any], allow: Collection[str]) -> None:
    """Refuse what a node does not allow, before anything of it is imported or called.

    Args:
        key: of the node, e.g. "model".
        node: as somebody else has it.
        allow: modules whose classes may be built beside the classes that conf/ names.

    Raises:
        InputError: ``_target_`` is none that conf/ names and no class in one of the modules of ``allow`` (for a model:
            of torch modules), or an argument is something to be built itself.
    """
    target = str(node.get("_target_"))
    if not _plain({name: value for name, value in node.items() if name != "_target_"}):
        raise InputError(f"{key}._target_ = {target}: its arguments must be plain values")
    if target in _ours():
        return
    module, _, name = target.rpartition(".")
    if module not in allow:
        raise InputError(
            f"{key}._target_ = {target}: the module {module} is not among the modules that this node allows beside "
            "of conf/ (`allow` of its configuration)"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{key}._target_ = {target}: it is not there") from error
    from torch import nn

    if not isinstance(found, type) or (key == "model" and not issubclass(found, nn.Module)):
        raise InputError(f"{key}._target_ = {target}: it is no class" + " of torch modules" * (key == "model"))


@functools.cache
def _ours() -> frozenset[str]:
    """What conf/ names for nodes to build."""
    groups = "model", "task", "dataset", "partition"
    files = [choice(group, name) for group in groups for name in names(group)]
    return frozenset(str(file["_target_"]) for file in files if file.get("_target_") is not None) - {"???"}


def _plain(value: Any) -> bool:
    """Whether nothing in an argument is something to be built, or a word to Hydra."""
    if isinstance(value, dict):
        return all(not str(key).startswith("_") and _plain(inner) for key, inner in value.items())
    return all(map(_plain, value)) if isinstance(value, list) else True
