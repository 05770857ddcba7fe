"""The ways into a configuration, and out of it: conf/ with overrides, YAML, and what it builds."""

import functools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config.check import check
from fedmuon_app.config.explain import explain
from fedmuon_app.config.schema import Config
from fedmuon_app.errors import InputError


def load(overrides: Sequence[str]) -> Config:
    """Compose conf/ with ``overrides``, words as on the command line, and check the result.

    Raises:
        InputError: an unknown key or choice, a wrong type, or a value that :func:`check` refuses.
    """
    register()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            node = compose("config", list(overrides))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise InputError(explain(error, overrides)) from error
    return typed(node)


def split(overrides: str) -> list[str]:
    """The words of one string of overrides, quoted as in a shell.

    Raises:
        InputError: a quotation mark is not closed.
    """
    try:
        return shlex.split(overrides)
    except ValueError as error:
        raise InputError(f"overrides = {overrides}: {error}") from error


def typed(node: Any) -> Config:
    """A composed configuration as checked dataclasses.

    Raises:
        InputError: :func:`check` refuses a value, or one is still missing (???).
    """
    register()
    try:
        # resolved first: interpolations of conf/experiment look at other keys
        config = cast(Config, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), _without_hydra(node))))
    except OmegaConfBaseException as error:
        raise InputError(explain(error, [])) from error
    check(config)
    return config


def dump(config: Config) -> str:
    """The whole configuration as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def loads(text: str) -> Config:
    """The inverse of :func:`dump`."""
    return typed(OmegaConf.create(text))


def build_module(node: dict[str, Any]) -> Any:
    """What ``model._target_`` names, called with the other keys.

    Raises:
        InputError: there is no such thing, or it refuses the arguments.
    """
    try:
        return instantiate(node)
    except HydraException as error:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split("\nfull_key")[0].split())
        raise InputError(f"model._target_ = {node.get('_target_')} cannot be built: {reason}") from error


@functools.cache
def register() -> None:
    """Tell Hydra the schema, and OmegaConf the resolvers of conf/ (once a process)."""
    ConfigStore.instance().store("schema", Config)
    OmegaConf.register_new_resolver("by_method", _by_method, replace=True)
    OmegaConf.register_new_resolver("by_norm", _by_norm, replace=True)
    OmegaConf.register_new_resolver("side_by_side", side_by_side, replace=True)


def side_by_side(engine: str, threads: int, device: str) -> int:
    """How many runs of a sweep train at once: one a core; one alone on a GPU or with Flower."""
    if engine != "in_process" or device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()):
        return 1
    return max(1, (os.cpu_count() or 1) // threads)


def conf_dir() -> Path:
    """conf/: inside the package when it was installed from a wheel, beside it in a clone or in a FAB."""
    package = Path(__file__).resolve().parents[1]
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def _by_method(table: Any, *, _root_: Any) -> Any:
    """``${by_method:{fedavg:0.1,…}}``: this method's entry, null where it has none."""
    return table.get(_root_.algorithm.name)


def _by_norm(table: Any, *, _root_: Any) -> Any:
    """``${by_norm:{spectral:moonlight,…}}``: this norm's entry."""
    return table.get(_root_.algorithm.lmo.norm, "one")


def _without_hydra(node: Any) -> Any:
    container = OmegaConf.to_container(node, resolve=True)
    return {key: value for key, value in cast(dict[str, Any], container).items() if key != "hydra"}
