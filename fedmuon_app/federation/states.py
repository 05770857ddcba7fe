"""What clients keep between their rounds, and where: one interface, in memory or in files."""

import os
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedmuon_app.algorithms.client import ClientState


class ClientStates(Protocol):
    """States by client id."""

    def load(self, client: int) -> ClientState | None:
        """The last state saved for ``client``; None when there was none."""

    def save(self, client: int, state: ClientState) -> None:
        """Replace the state of ``client``."""


class MemoryStates:
    """In this process."""

    def __init__(self) -> None:
        self._states: dict[int, ClientState] = {}

    def load(self, client: int) -> ClientState | None:
        """See :class:`ClientStates`."""
        return self._states.get(client)

    def save(self, client: int, state: ClientState) -> None:
        """See :class:`ClientStates`."""
        self._states[client] = state


class FileStates:
    """One safetensors file a client in a folder: whichever process plays the client finds it there.

    A file is replaced at once or not at all. Only its owner may read it: a momentum is a gradient, and
    gradients tell of the data.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Make the folder if needed.

        Args:
            folder: of the files.
            device: where loaded tensors go.
        """
        self._folder, self._device = folder, str(device)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self, client: int) -> ClientState | None:
        """See :class:`ClientStates`."""
        file = self._folder / f"{client}.safetensors"
        if not file.exists():
            return None
        parts: dict[str, dict[str, Tensor]] = {"M": {}, "C": {}, "v": {}}
        with safe_open(file, framework="pt", device=self._device) as stored:
            counts = stored.metadata()
            for key in stored.keys():  # noqa: SIM118 - safe_open is no mapping
                part, name = key.split("/", 1)
                parts[part][name] = stored.get_tensor(key)
        C = parts["M"] if counts["C"] == "M" else parts["C"]
        return ClientState(parts["M"], C, parts["v"], int(counts["t"]), int(counts["steps"]))

    def save(self, client: int, state: ClientState) -> None:
        """See :class:`ClientStates`."""
        same = state.C is state.M
        tensors = {
            f"{part}/{name}": x.contiguous()
            for part, params in (("M", state.M), ("C", {} if same else state.C), ("v", state.v))
            for name, x in params.items()
        }
        counts = {"C": "M" if same else "C", "t": str(state.t), "steps": str(state.steps)}
        new = self._folder / f"{client}.new"
        save_file(tensors, new, metadata=counts)
        new.chmod(0o600)
        os.replace(new, self._folder / f"{client}.safetensors")
