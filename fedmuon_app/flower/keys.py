"""Whose a client is: the SuperNode's registered key, by its fingerprint."""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from fedmuon_app.errors import InputError


@functools.cache
def fingerprint(pem: bytes) -> str:
    """SHA256:… of a public key, as ``ssh-keygen -lf`` prints it."""
    line = load_pem_public_key(pem).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    blob = base64.b64decode(line.split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def named_nodes(path: str | None, n: int) -> Mapping[str, frozenset[int]] | None:
    """``federation.nodes``: the clients of each key; None: nobody is named beforehand.

    Args:
        path: of a YAML file, ``SHA256:…: [ids]`` a line.
        n: clients have ids below n.

    Raises:
        InputError: it cannot be read, or is none such.
    """
    if path is None:
        return None
    file = Path(path).expanduser()
    try:
        given = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"federation.nodes = {path}: it cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(given, dict) or not given:
        raise InputError(f"federation.nodes = {path}: must hold lines like 'SHA256:…: [0, 1]'")
    seen: set[int] = set()
    for key, ids in given.items():
        if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", str(key)):
            raise InputError(f"federation.nodes = {path}: {key} is no fingerprint (ssh-keygen -lf node-0.pub shows it)")
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < n for i in ids):
            raise InputError(f"federation.nodes = {path}: {key} has {ids}: must be a list of ids from 0 to {n - 1}")
        if twice := seen & set(ids):
            raise InputError(f"federation.nodes = {path}: client {min(twice)} has two keys")
        seen |= set(ids)
    return {str(key): frozenset(ids) for key, ids in given.items()}


class Owners:
    """Which key plays which client: who was named beforehand, or else who came first."""

    def __init__(self, owners: dict[int, str], named: Mapping[str, frozenset[int]] | None) -> None:
        """Begin.

        Args:
            owners: fingerprint by client id, of an earlier life of the run; grows.
            named: :func:`named_nodes`.
        """
        self._owners, self._named = owners, named

    def stranger(self, key: str) -> bool:
        """Whether nobody with this key is let in."""
        return self._named is not None and key not in self._named

    def grant(self, client: int, key: str) -> bool:
        """Whether the node with this key may play ``client``; from then on nobody else may. "" is no key."""
        if self._named is not None:
            return client in self._named.get(key, ())
        return not key or self._owners.setdefault(client, key) == key
