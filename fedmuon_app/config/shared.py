"""What a client takes from the server: a part of the run's configuration, as JSON. The rest is its node's own."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedmuon_app.config.explain import explain
from fedmuon_app.config.files import belongs, choice, conf_dir, flat
from fedmuon_app.config.load import typed
from fedmuon_app.config.schema import Config
from fedmuon_app.errors import InputError

# the method and its numbers, the model, K, B, the seed, and what the client's data must look like
SHARED = (
    "rounds", "seed", "compute", "algorithm", "model", "task", "partition", "local",
    "dataset.name", "dataset._target_", "dataset.args", "dataset.target", "dataset.length",
    "dataset.validation", "dataset.client_validation",
    "dataset.augment", "dataset.classes", "dataset.size", "dataset.channels",
    "federation.num_clients", "federation.clients_per_round",
)  # fmt: skip
MOST = 2**16  # characters
NOT_OURS = ("defaults", "hydra", "algorithm")  # of conf/config.yaml: Hydra's, and what the server's text has whole
PLACE = "dataset.args.path"  # a node has dataset.path of its own there


def shared(c: Config) -> str:
    """The part of ``c`` that goes to the clients; the same text for the same values."""
    values = {k: v for k, v in sorted(flat(asdict(c)).items()) if belongs(k, SHARED)}
    if values.get(PLACE) == c.dataset.path:  # no argument of somebody's own loader, but where the data is here
        values.pop(PLACE, None)
    return json.dumps(values, ensure_ascii=False)


def at_node(text: str, own: Mapping[str, Any]) -> Config:
    """The configuration of a client.

    Args:
        text: what the server has sent, :func:`shared` of its own.
        own: the node's own values, by dotted keys.

    Raises:
        InputError: the text is no part of a configuration, or says what a node decides by itself.
    """
    values = _read(text)
    conf = cast(DictConfig, OmegaConf.load(conf_dir() / "config.yaml"))
    whole = OmegaConf.masked_copy(conf, [str(key) for key in conf if key not in NOT_OURS])
    try:
        for key, value in {"engine.name": "deployment", **values, **own}.items():
            OmegaConf.update(whole, key, value, merge=False, force_add=True)
        if "path" in choice("dataset", str(values.get("dataset.name"))).get("args", {}):
            OmegaConf.update(whole, PLACE, own.get("dataset.path"), force_add=True)
    except OmegaConfBaseException as error:
        raise InputError(explain(error, [])) from error
    return typed(whole)


def only_longer(was: str, now: str) -> bool:
    """Whether two texts say the same but for ``rounds``, as a run's and its resume's do."""
    a, b = ({k: v for k, v in _read(text).items() if k != "rounds"} for text in (was, now))
    return a == b


def _read(text: str) -> dict[str, Any]:
    if len(text) > MOST:
        raise InputError(f"the configuration has {len(text)} characters, and at most {MOST} are taken")
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError("the configuration is no JSON") from error
    if not isinstance(values, dict):
        raise InputError("the configuration is no JSON object")
    for key, value in values.items():
        if not belongs(key, SHARED):
            raise InputError(f"{key}: a node decides that by itself")
        if "${" in json.dumps([key, value]):  # would be looked up here: an environment variable, a file
            raise InputError(f"{key}: no interpolations are taken")
    return values
