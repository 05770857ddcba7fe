"""A run's checkpoint: all that the server needs to go on after its last round.

One safetensors file of X, C, U and the rounds of each client that were counted. Its metadata hold the rest as JSON:
the round, how long nobody has answered well, and what the run's log has counted. Clients keep their own states.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.algorithms.server import Server
from fedmuon_app.disk import write_whole
from fedmuon_app.errors import InputError
from fedmuon_app.federation.folder import CHECKPOINT, CLIENTS
from fedmuon_app.federation.protocol import Acknowledged, CallId, Cohort
from fedmuon_app.federation.states import MappedStates, digest

MOST_SAID = 10  # reasons that are kept of a round
FORM = 5  # of the file; another version's is refused


@dataclass(frozen=True)
class RunState:
    """How far a run has come.

    Attributes:
        server: X, C and U after ``round``.
        round: the last one that is over; -1 when round 0 (the gradient start) is still to come.
        experiment: a name of the run for ever, resumed or not: clients keep their states under it.
        attempt: 1, and one more each time the run is resumed.
        counted: by client id, its last call whose reply went into X and C.
        saved: the same in the last checkpoint.
        silent: rounds without a single good reply since the last one with any.
        said: why, in the last of them.
        clients: ids of the n clients of the experiment, whoever is connected.
        owners: by client id, the fingerprint of the key whose node plays it; grows as nodes come.
    """

    server: Server
    round: int = 0
    experiment: str = ""
    attempt: int = 1
    counted: Mapping[int, CallId] = field(default_factory=dict)
    saved: Mapping[int, CallId] = field(default_factory=dict)
    silent: int = 0
    said: Sequence[str] = ()
    clients: Sequence[int] = ()
    owners: dict[int, str] = field(default_factory=dict)

    @property
    def has_trained(self) -> bool:
        """Whether any reply to a call for training has been counted (round 0 asks for a gradient alone)."""
        return any(call_id.round for call_id in self.counted.values())

    def cohort(self, clients: Sequence[int]) -> Cohort:
        """``clients`` with what is counted of them."""
        never = Acknowledged()
        return {
            i: Acknowledged(self.counted.get(i, never.last), self.saved.get(i, never.saved)) for i in sorted(clients)
        }

    def after(self, round_: int, server: Server, good: Sequence[int], reasons: Iterable[str] = ()) -> "RunState":
        """The standing after ``round_``: the replies of ``good`` were counted, others not, for these ``reasons``."""
        call_id = CallId(self.attempt, round_)
        counted = {**self.counted, **dict.fromkeys(good, call_id)}
        silent, said = (0, []) if good else (self.silent + 1, sorted(set(reasons))[:MOST_SAID])
        return replace(self, server=server, round=round_, counted=counted, silent=silent, said=said)


def write(folder: Path, standing: RunState, log: Mapping[str, Any], config: str) -> RunState:
    """Replace the checkpoint in ``folder``, at once or not at all; the standing with ``saved`` as it is now.

    Raises:
        OSError: it cannot be written; the last one still stands.
    """
    tensors = {name: getattr(standing.server, name).detach().cpu().contiguous() for name in "XCU"}
    counted = [(i, *call_id) for i, call_id in sorted(standing.counted.items())]
    tensors["counted"] = torch.tensor(counted, dtype=torch.int64).reshape(-1, 3)
    about = {
        "form": FORM,
        "round": standing.round,
        "experiment": standing.experiment,
        "attempt": standing.attempt,
        "silent": standing.silent,
        "said": list(standing.said),
        "clients": list(standing.clients),
        "owners": standing.owners,
        "log": log,
        "config": config,
        "sha256": digest(tensors.values()),
    }
    write_whole(folder / CHECKPOINT, save(tensors, {"about": json.dumps(about)}))
    return replace(standing, saved=standing.counted)


def read(folder: Path) -> tuple[RunState, dict[str, Any]]:
    """The checkpoint in ``folder``, on the CPU, and what the run's log knew then.

    Raises:
        InputError: there is none, or it is damaged.
    """
    about = _about(folder)
    try:
        with safe_open(folder / CHECKPOINT, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in ("X", "C", "U", "counted")}
    except (SafetensorError, OSError) as error:
        raise _damaged(folder, error) from error
    if digest(tensors.values()) != about["sha256"]:
        raise _damaged(folder, "its checksum is wrong")
    counted = {i: CallId(*call_id) for i, *call_id in tensors.pop("counted").tolist()}
    said = about["silent"], about["said"], about["clients"]
    owners = {int(i): key for i, key in about["owners"].items()}
    how_far = about["round"], about["experiment"], about["attempt"]
    return RunState(Server(**tensors), *how_far, counted, counted, *said, owners), about["log"]


def states_beside(folder: Path, n: int, like: ClientState, device: torch.device, name: str = CLIENTS) -> MappedStates:
    """What is kept by client on the machine of the run's folder, there: by default, its clients' states."""
    return MappedStates(folder / name, n, like, device)


def rounds_in(folder: Path) -> int:
    """How many rounds the run in ``folder`` has trained, by its checkpoint; 0 where there is none.

    Raises:
        InputError: it is damaged.
    """
    return max(0, int(_about(folder)["round"])) if (folder / CHECKPOINT).exists() else 0


def config_of(folder: Path) -> str:
    """The configuration of the run in ``folder``, as YAML.

    Raises:
        InputError: there is no checkpoint, or it is damaged.
    """
    return str(_about(folder)["config"])


def _about(folder: Path) -> dict[str, Any]:
    if not (folder / CHECKPOINT).exists():
        raise InputError(f"resume = {folder}: there is no {CHECKPOINT} in it")
    try:
        with safe_open(folder / CHECKPOINT, framework="pt") as stored:
            about: dict[str, Any] = json.loads(stored.metadata()["about"])
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise _damaged(folder, error) from error
    if about.get("form") != FORM:
        raise InputError(
            f"resume = {folder}: its {CHECKPOINT} is of another version of this app (form {about.get('form', 1)}, "
            f"this one reads {FORM}): go on with that version"
        )
    return about


def _damaged(folder: Path, why: object) -> InputError:
    return InputError(f"resume = {folder}: its {CHECKPOINT} is damaged ({why})")
