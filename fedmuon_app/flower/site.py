"""A SuperNode's own configuration, and what it remembers of each experiment: the server has no say in either."""

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmuon_app.config import OWN, Config, at_node, only_longer, refuse_others, targets
from fedmuon_app.disk import write_whole
from fedmuon_app.errors import InputError, SiteError
from fedmuon_app.flower.worker import states_of

log = logging.getLogger("fedmuon")

KEYS = ("partition-id", "num-partitions", "data-path", "dataset-path", "state-dir", "allow", "device", "threads")
NOT_ASKED = "this node has not been asked with this configuration"  # the server asks it, and goes on


@dataclass(frozen=True)
class Site:
    """A node.

    Attributes:
        node: it plays the clients whose id is this number modulo ``nodes``.
        nodes: how many nodes there are.
        data: folder of class folders, its clients' own pictures; None: they take their parts of the run's data set.
        states: where its clients keep what they keep.
        allow: modules whose classes may be built as models.
        own: what its configuration says in place of the server's, by dotted keys.
    """

    node: int
    nodes: int
    data: Path | None
    states: Path
    allow: tuple[str, ...]
    own: Mapping[str, Any]

    def plays(self, client: int) -> bool:
        """Whether ``client`` is one of its."""
        return client % self.nodes == self.node

    def meet(self, experiment: str, text: str) -> Config:
        """Take an experiment's configuration from the server, for all its calls.

        Raises:
            SiteError: it is not acceptable, or the experiment has had another one.
        """
        config = self._accept(text)
        file = self._file(experiment)
        was = file.read_text() if file.exists() else text
        if not only_longer(was, text):
            raise SiteError("this experiment had another configuration before: only rounds may change")
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, text.encode())
        except OSError as error:
            log.error("%s cannot be written: %s", file, error)
            raise SiteError(f"its state folder cannot be written ({error.strerror})") from error
        return config

    def recall(self, experiment: str, sha256: str) -> Config:
        """The configuration that a call names by its hash.

        Raises:
            SiteError: it is not the one that the server has sent with its question.
        """
        file = self._file(experiment)
        text = file.read_text() if file.exists() else ""
        if digest(text) != sha256:
            raise SiteError(NOT_ASKED)
        return self._accept(text)

    def folder(self, experiment: str) -> Path:
        """Where the states of an experiment are.

        Raises:
            SiteError: that is no name of one.
        """
        if not re.fullmatch("[0-9a-f]{4,64}", experiment):
            raise SiteError("an experiment's name must be a hexadecimal number")
        return self.states / experiment

    def _accept(self, text: str) -> Config:
        try:
            config = at_node(text, self.own)
            for key, node in targets(config):
                refuse_others(key, node, self.allow)
        except InputError as error:
            raise SiteError(f"the server's configuration is refused: {error}") from error
        if (self.data is None) == (config.partition.name == OWN):
            raise SiteError(
                "this node has no data-path, and partition=own leaves the data to the nodes"
                if self.data is None
                else f"this node has data of its own (data-path), and partition={config.partition.name} deals out "
                f"{config.dataset.name}: the run needs partition=own"
            )
        return config

    def _file(self, experiment: str) -> Path:
        return self.folder(experiment) / "configuration.json"


def site(given: Mapping[str, object]) -> Site:
    """Read ``--node-config``.

    Raises:
        SiteError: a key is missing or unknown, or a value is none that it can have.
    """
    for key in given:
        if key not in KEYS:
            raise SiteError(f"its node configuration has a key {key!r}; known are {', '.join(KEYS)}")
    numbers: dict[str, int] = {}
    for key, default in (("partition-id", None), ("num-partitions", None), ("threads", 1)):
        value = given.get(key, default)
        if value is None:
            raise SiteError(f"its node configuration lacks {key}: --node-config 'partition-id=0 num-partitions=2'")
        if not isinstance(value, int) or value < (key != "partition-id"):
            least = int(key != "partition-id")
            raise SiteError(f"its node configuration says {key} = {value!r}: must be a whole number from {least} on")
        numbers[key] = value
    node, nodes = numbers["partition-id"], numbers["num-partitions"]
    if node >= nodes:
        raise SiteError(f"its node configuration says partition-id = {node}: must be below num-partitions = {nodes}")
    own: dict[str, Any] = {"engine.threads": numbers["threads"], "device": str(given.get("device", "auto"))}
    if given.get("dataset-path"):
        own["dataset.path"] = str(given["dataset-path"])
    return Site(
        node,
        nodes,
        _folder(given, "data-path"),
        _folder(given, "state-dir") or states_of({}),
        tuple(word.strip() for word in str(given.get("allow", "")).split(",") if word.strip()),
        own,
    )


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def _folder(given: Mapping[str, object], key: str) -> Path | None:
    value = given.get(key)
    if not value:
        return None
    path = Path(str(value)).expanduser()
    if not path.is_absolute():  # a ClientApp's working folder is Flower's choice
        raise SiteError(f"its node configuration has a relative {key}: must be an absolute path")
    if key == "data-path" and not path.is_dir():
        log.error("data-path = %s is no folder", path)
        raise SiteError("its data-path is no folder")
    return path
