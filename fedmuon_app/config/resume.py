"""The configuration of a run that goes on: its first life's, with what may change."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config.explain import explain
from fedmuon_app.config.files import belongs, flat
from fedmuon_app.config.load import dump, loads, typed
from fedmuon_app.config.schema import Config
from fedmuon_app.errors import InputError

# keys, or groups of them, that do not change what a round computes from X, C and the clients' states
FREE = (
    "rounds", "dry_run", "device", "run_dir", "resume", "tracker", "engine", "evaluation", "checkpoint", "stop",
    "dataset.path",
    "federation.round_timeout", "federation.connect_timeout", "federation.min_replies", "federation.grace",
    "federation.nodes",
)  # fmt: skip
GROUPS = ("algorithm", "dataset", "model", "partition", "experiment")


def resumed(folder: str, saved: str, words: Sequence[str]) -> Config:
    """The configuration ``saved`` in ``folder``, with the words of the command line.

    Raises:
        InputError: a word changes what the run is.
    """
    changes = []
    for word in words:
        key, _, value = word.partition("=")
        if key in GROUPS or key.startswith(("+", "~")):
            raise InputError(f"resume = {folder}: the run there has its configuration; leave {word} out")
        if not key.startswith("hydra"):
            changes.append(f"engine.name={value}" if key == "engine" else word)
    was = loads(saved)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(dump(was)))
        config = typed(OmegaConf.merge(merged, OmegaConf.from_dotlist(changes)))
    except OmegaConfBaseException as error:
        raise InputError(explain(error, words)) from error
    refuse_another(folder, asdict(was), config)
    return config


def refuse_another(folder: str, was: Mapping[str, Any], config: Config) -> None:
    """Only what is FREE may differ between a run's lives.

    Args:
        folder: of the run.
        was: its configuration.
        config: the one to go on with.

    Raises:
        InputError: something else does.
    """
    now = flat(asdict(config))
    was_over = was["rounds"], was["algorithm"].get("schedule", "constant")
    if was_over[1] != "constant" and config.rounds != was_over[0]:
        raise InputError(
            f"rounds = {config.rounds}: the run to resume in {folder} has a schedule ({was_over[1]}) over {was_over[0]}"
        )
    for key, value in flat(was).items():
        if not belongs(key, FREE) and now.get(key) != value:
            raise InputError(f"{key} = {now.get(key)}: the run to resume in {folder} has {value}")
