"""What clients keep between their rounds, and where: one interface, in one mapped file or in files of a folder.

A client's state is kept for the last round that the server has counted, for the one in its last checkpoint, and
for the one that is under way: three at most (see :mod:`fedmuon_app.federation.protocol`).
"""

import fcntl
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.disk import write_whole
from fedmuon_app.errors import RunError
from fedmuon_app.federation.protocol import NEVER, CallId

log = logging.getLogger("fedmuon")

RAM = Path("/dev/shm")  # a file system in memory, on Linux
SLOTS = 3
HEAD = 3 * 8  # bytes of a slot: its call, t and steps


class StateError(RunError):
    """A client has not the state that the server counts on, or is called too late. It goes to the server: no paths."""


class ClientStates(Protocol):
    """States by client id."""

    def load(self, client: int, call_id: CallId) -> ClientState:
        """The state that ``client`` had after ``call_id``.

        Raises:
            StateError: it is not there, or damaged.
        """

    def newest(self, client: int) -> CallId:
        """The latest call whose state is there, or NEVER."""

    def save(self, client: int, call_id: CallId, state: ClientState, keep: Collection[CallId]) -> None:
        """Keep the state after ``call_id``; states after other calls than ``keep`` may go.

        Raises:
            StateError: it cannot be written (a full disk); the states after ``keep`` still stand.
        """

    def lock(self, client: int) -> AbstractContextManager[None]:
        """Keep other processes from calling ``client`` at the same time."""


class MappedStates:
    """One sparse file of n rows, mapped into the memory of every process that plays clients.

    A row costs nothing, neither memory nor disk, until its client is saved for the first time. Loading a
    state copies nothing on a CPU: it is good as long as it is kept. A process that is killed leaves the states
    that were whole before; nothing is forced to the disk, so a machine that loses its power may lose some.
    """

    def __init__(self, file: Path, n: int, like: ClientState, device: torch.device) -> None:
        """Map the file, made if needed.

        Args:
            file: where.
            n: clients have ids below n.
            like: a state with the sizes of all of them.
            device: where loaded tensors go.
        """
        self._names = list(stored(like))
        self._sizes = [x.numel() for x in stored(like).values()]
        self._dtype, self._device = like.M.dtype, device
        self._numbers = slice(HEAD, HEAD + sum(self._sizes) * like.M.element_size())
        slot = -(-self._numbers.stop // 64) * 64  # starts at a cache line
        rows = torch.from_file(str(file), shared=True, size=n * SLOTS * slot, dtype=torch.uint8)
        self._rows = rows.view(n, SLOTS, slot)
        self._file = os.open(file, os.O_RDWR)

    @staticmethod
    def size(n: int, like: ClientState) -> int:
        """Bytes of the file when all n clients have two states, as without checkpoints."""
        return 2 * n * size_of(like)

    def load(self, client: int, call_id: CallId) -> ClientState:
        """See :class:`ClientStates`."""
        call_ids = self._turns(client)
        if call_id not in call_ids:
            raise StateError(f"client {client} has no state of {call_id}: was its file deleted?")
        slot = self._rows[client, call_ids.index(call_id)]
        t, steps = slot[8:HEAD].view(torch.int64).tolist()
        parts = torch.split(slot[self._numbers].view(self._dtype).to(self._device), self._sizes)
        return restored(dict(zip(self._names, parts, strict=True)), t, steps)

    def newest(self, client: int) -> CallId:
        """See :class:`ClientStates`."""
        return max(self._turns(client))

    def save(self, client: int, call_id: CallId, state: ClientState, keep: Collection[CallId]) -> None:
        """See :class:`ClientStates`."""
        call_ids = self._turns(client)
        free = [j for j, kept in enumerate(call_ids) if kept == NEVER or kept not in keep]
        j = call_ids.index(call_id) if call_id in call_ids else free[0]
        place = (client * SLOTS + j) * self._rows.shape[2]
        numbers = [x.cpu().contiguous().numpy() for x in stored(state).values()]
        counts = np.array([0, state.t, state.steps])  # no call: not there while it is written
        try:  # by the file, not by its mapping: on a full disk that would be a signal, and the end of the process
            _write(self._file, [counts, *numbers], place)
            _write(self._file, [np.array([call_id.attempt << 32 | call_id.round])], place)
        except OSError as error:
            raise StateError(f"the state of client {client} cannot be written: {error.strerror}") from error

    @contextmanager
    def lock(self, client: int) -> Iterator[None]:
        """See :class:`ClientStates`."""
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, client)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, client)

    def _turns(self, client: int) -> list[CallId]:
        # read from the file: a look at a hole through the mapping takes a page of a file system in memory
        places = [(client * SLOTS + j) * self._rows.shape[2] for j in range(SLOTS)]
        words = [int.from_bytes(os.pread(self._file, 8, place), sys.byteorder) for place in places]
        return [CallId(word >> 32, word & 0xFFFFFFFF) for word in words]


class FileStates:
    """A folder a client, with a safetensors file for each state: for a client's own machine.

    A file is there whole or not at all, also after a loss of power, and is checked when it is read. Only its
    owner may read it: a momentum is a gradient, and gradients tell of the data.
    """

    def __init__(self, folder: Path, like: ClientState, device: torch.device) -> None:
        """Name the folder.

        Args:
            folder: of one experiment; named after it.
            like: a state with the sizes of all of them.
            device: where loaded tensors go.
        """
        self._folder, self._device = folder, device
        self._sizes = {name: x.shape for name, x in stored(like).items()}

    def load(self, client: int, call_id: CallId) -> ClientState:
        """See :class:`ClientStates`."""
        file = self._file(client, call_id)
        if not file.exists():
            raise self._error(f"client {client} has no state of {call_id}", file, "it is not there")
        try:
            with safe_open(file, framework="pt") as opened:
                said = opened.metadata()
                tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - no mapping
        except (SafetensorError, OSError) as error:
            raise self._error(f"the state of client {client} cannot be read", file, error) from error
        whose = {key: said.get(key) for key in ("experiment", "client", "call_id")}
        if whose != self._label(client, call_id):
            raise self._error(f"the state of client {client} is another one's", file, whose)
        if {key: x.shape for key, x in tensors.items()} != self._sizes or said.get("sha256") != digest(
            _by_name(tensors)
        ):
            raise self._error(f"the state of client {client} is damaged", file, "its sizes or its checksum are wrong")
        there = {key: x.to(self._device) for key, x in tensors.items()}
        return restored(there, int(said["t"]), int(said["steps"]))

    def newest(self, client: int) -> CallId:
        """See :class:`ClientStates`."""
        return max((_turn(file) for file in (self._folder / str(client)).glob("*.safetensors")), default=NEVER)

    def save(self, client: int, call_id: CallId, state: ClientState, keep: Collection[CallId]) -> None:
        """See :class:`ClientStates`."""
        file = self._file(client, call_id)
        tensors = {name: x.cpu().contiguous() for name, x in stored(state).items()}
        counts = {"t": str(state.t), "steps": str(state.steps), "sha256": digest(_by_name(tensors))}
        try:
            self._make(file.parent)
            write_whole(file, save(tensors, self._label(client, call_id) | counts))
        except OSError as error:
            raise self._error(
                f"the state of client {client} cannot be written: {error.strerror}", file, error
            ) from error
        for other in file.parent.glob("*.safetensors"):
            if _turn(other) not in {call_id, *keep}:
                other.unlink(missing_ok=True)

    @contextmanager
    def lock(self, client: int) -> Iterator[None]:
        """See :class:`ClientStates`."""
        folder = self._folder / str(client)
        self._make(folder)
        with (folder / "lock").open("w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            yield

    def _make(self, folder: Path) -> None:
        for part in (self._folder, folder):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)

    @staticmethod
    def _error(what: str, file: Path, why: object) -> StateError:
        log.error("%s: %s: %s", what, file, why)
        return StateError(what)

    def _file(self, client: int, call_id: CallId) -> Path:
        return self._folder / str(client) / f"{call_id.attempt}-{call_id.round}.safetensors"

    def _label(self, client: int, call_id: CallId) -> dict[str, str]:
        return {"experiment": self._folder.name, "client": str(client), "call_id": f"{call_id.attempt}-{call_id.round}"}


def unnamed_states(n: int, like: ClientState, device: torch.device) -> MappedStates:
    """States for this process and its forks, in RAM where RAM has twice the room, else on disk.

    The file has no name any more when this returns: nothing is left behind, however the process ends.
    """
    in_ram = RAM.is_dir() and shutil.disk_usage(RAM).free > 2 * MappedStates.size(n, like)
    with tempfile.NamedTemporaryFile(prefix="fedmuon-", dir=RAM if in_ram else None) as file:
        return MappedStates(Path(file.name), n, like, device)


def _write(file: int, arrays: Sequence[NDArray[Any]], place: int) -> None:
    """Write one array after the other from ``place`` on, all of them.

    Raises:
        OSError: it could not.
    """
    parts = [array.data.cast("B") for array in arrays if array.size]
    while parts:
        written = os.pwritev(file, parts, place)
        place += written
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]


def stored(state: ClientState) -> dict[str, torch.Tensor]:
    """By name M, the step rules' slots, and C where it is not M."""
    return {"M": state.M, **state.kept, **({} if state.C is state.M else {"C": state.C})}


def restored(tensors: Mapping[str, torch.Tensor], t: int, steps: int) -> ClientState:
    """The inverse."""
    kept = {name: x for name, x in tensors.items() if name not in ("M", "C")}
    return ClientState(tensors["M"], tensors.get("C", tensors["M"]), kept, t, steps)


def size_of(state: ClientState) -> int:
    """Bytes of its tensors."""
    return sum(x.nbytes for x in stored(state).values())


def _turn(file: Path) -> CallId:
    attempt, _, round_ = file.stem.partition("-")
    return CallId(int(attempt), int(round_))


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """SHA-256 of the bytes of CPU tensors, one after the other."""
    sha256 = hashlib.sha256()
    for x in tensors:
        sha256.update(x.numpy().data)
    return sha256.hexdigest()


def _by_name(tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [x for _, x in sorted(tensors.items())]
