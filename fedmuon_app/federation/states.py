"""What clients keep between their rounds, and where: one interface, in one mapped file or a file each."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fedmuon_app.algorithms.client import ClientState

RAM = Path("/dev/shm")  # a file system in memory, on Linux


class ClientStates(Protocol):
    """States by client id."""

    def load(self, client: int) -> ClientState | None:
        """The last state saved for ``client``; None when there was none."""

    def save(self, client: int, state: ClientState) -> None:
        """Replace the state of ``client``."""


class MappedStates:
    """One sparse file of n rows, mapped into the memory of every process that plays clients.

    A row costs nothing, neither memory nor disk, until its client is saved for the first time. Loading a
    state copies nothing on a CPU: it is good until that client is saved again.
    """

    def __init__(self, file: Path, n: int, like: ClientState, device: torch.device) -> None:
        """Map the file, made if needed.

        Args:
            file: where.
            n: clients have ids below n.
            like: a state with the sizes of all of them.
            device: where loaded tensors go.
        """
        self._sizes = [x.numel() for x in _stored(like)]
        self._dtype, self._device = like.M.dtype, device
        counts, numbers = 2 * 8, sum(self._sizes) * like.M.element_size()
        row = -(-(counts + numbers) // 64) * 64  # a row starts at a cache line
        self._rows = torch.from_file(str(file), shared=True, size=n * row, dtype=torch.uint8).view(n, row)
        self._numbers = slice(counts, counts + numbers)

    @staticmethod
    def size(n: int, like: ClientState) -> int:
        """Bytes of the file when all n clients have been saved."""
        return n * sum(x.numel() * x.element_size() for x in _stored(like))

    def load(self, client: int) -> ClientState | None:
        """See :class:`ClientStates`."""
        t, steps = self._rows[client, :16].view(torch.int64).tolist()
        if not steps:
            return None
        row = self._rows[client, self._numbers].view(self._dtype).to(self._device)
        M, v, *C = torch.split(row, self._sizes)
        return ClientState(M, C[0] if C else M, v, t, steps)

    def save(self, client: int, state: ClientState) -> None:
        """See :class:`ClientStates`."""
        torch.cat([x.cpu() for x in _stored(state)], out=self._rows[client, self._numbers].view(self._dtype))
        self._rows[client, :16].view(torch.int64).copy_(torch.tensor([state.t, state.steps]))


class FileStates:
    """One safetensors file a client in a folder: for a client's own machine.

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
        with safe_open(file, framework="pt", device=self._device) as stored:
            counts = stored.metadata()
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 - safe_open is no mapping
        C = tensors.get("C", tensors["M"])
        return ClientState(tensors["M"], C, tensors["v"], int(counts["t"]), int(counts["steps"]))

    def save(self, client: int, state: ClientState) -> None:
        """See :class:`ClientStates`."""
        tensors = dict(zip("MvC", _stored(state), strict=False))
        new = self._folder / f"{client}.new"
        save_file(tensors, new, metadata={"t": str(state.t), "steps": str(state.steps)})
        new.chmod(0o600)
        os.replace(new, self._folder / f"{client}.safetensors")


@contextmanager
def unnamed_states(n: int, like: ClientState, device: torch.device) -> Iterator[MappedStates]:
    """States for this process and those that it forks, in RAM where that has twice the room, else on disk.

    The file has no name any more when this returns: nothing is left behind, however the process ends.
    """
    in_ram = RAM.is_dir() and shutil.disk_usage(RAM).free > 2 * MappedStates.size(n, like)
    with tempfile.NamedTemporaryFile(prefix="fedmuon-", dir=RAM if in_ram else None) as file:
        states = MappedStates(Path(file.name), n, like, device)
    yield states


def _stored(state: ClientState) -> list[torch.Tensor]:
    """M, v, and C where it is not M."""
    return [state.M, state.v, *([] if state.C is state.M else [state.C])]
