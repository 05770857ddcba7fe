"""The ways into a configuration, and out of it: conf/ with overrides, YAML, and what it builds."""

import functools
import hashlib
import re
import shlex
from collections.abc import Sequence
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from joblib import cpu_count
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config.check import check
from fedmuon_app.config.explain import COMPOSING, explain
from fedmuon_app.config.files import conf_dir
from fedmuon_app.config.schema import Config
from fedmuon_app.errors import InputError

LONGEST_NAME = 120  # characters of a run's folder


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
    except (*COMPOSING, ValueError) as error:
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
        container = {key: _plain(node[key]) for key in node if key != "hydra"}
        config = cast(Config, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), container)))
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


@functools.cache
def register() -> None:
    """Tell Hydra the schema, and OmegaConf the resolvers of conf/ (once a process)."""
    ConfigStore.instance().store("schema", Config)
    OmegaConf.register_new_resolver("by_method", _by_method, replace=True)
    OmegaConf.register_new_resolver("by_norm", _by_norm, replace=True)
    OmegaConf.register_new_resolver("by_engine", _by_engine, replace=True)
    OmegaConf.register_new_resolver("is_regression", _is_regression, replace=True)
    OmegaConf.register_new_resolver("side_by_side", side_by_side, replace=True)
    OmegaConf.register_new_resolver("run_name", run_name, replace=True)


def side_by_side(engine: str, threads: int, device: str) -> int:
    """How many runs of a sweep train at once: one a core; one alone on a GPU or with Flower."""
    if engine != "in_process" or device.startswith("cuda"):
        return 1
    if device == "auto":
        import torch  # seconds, which a command that is refused, or asks for help, goes without

        if torch.cuda.is_available():
            return 1
    return max(1, cpu_count() // threads)


def run_name(words: Sequence[str], without: Sequence[str]) -> str:
    """The name of a run's folder in a sweep, from its overrides: whatever their order, and whatever else there is.

    ``algorithm=fedmuon algorithm.lr=0.01 seed=0`` is fedmuon_lr-0.01_seed-0. Words of keys that begin with one of
    ``without`` do not count. A hash is added where characters or words had to be left out.
    """
    parts = []
    for key, _, value in (word.partition("=") for word in words):
        if not key.startswith(tuple(without)):
            short = key.removeprefix("algorithm.").removeprefix("+")
            parts.append((key != "algorithm", key, value if key == "algorithm" else f"{short}-{value}"))
    whole = "_".join(part for *_, part in sorted(parts)) or "run"
    name = re.sub(r"[^\w.+-]+", "-", whole, flags=re.ASCII).strip("-.")
    if name == whole and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _by_method(table: Any, *, _root_: Any) -> Any:
    """``${by_method:{fedavg:0.1,…}}``: this method's entry, null where it has none."""
    return table.get(_root_.algorithm.name)


def _by_engine(table: Any, *, _root_: Any) -> Any:
    """``${by_engine:{deployment:10}}``: this engine's entry, null where it has none."""
    return table.get(_root_.engine.name)


def _is_regression(*, _root_: Any) -> bool:
    """``${is_regression:}``: whether the task is of quantities."""
    return str(_root_.task._target_).endswith("Regression")


def _by_norm(table: Any, *, _root_: Any) -> Any:
    """``${by_norm:{spectral:moonlight,…}}``: this norm's entry."""
    norm = _root_.algorithm.lmo.norm
    return table.get(norm, "one") if isinstance(norm, str) else "one"
