"""A run's checkpoint: all that the server needs to go on after its last round.

One safetensors file of X, C and U. Its metadata hold the rest as JSON: the round, the rounds of each client that
were counted, and what the run's log knows. Clients keep their own states.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fedmuon_app.algorithms.client import ClientState
from fedmuon_app.algorithms.server import Server
from fedmuon_app.errors import InputError
from fedmuon_app.federation.states import MappedStates, digest, write_whole
from fedmuon_app.federation.turns import Cohort, Counted, Turn

CHECKPOINT, CLIENTS = "checkpoint.safetensors", "clients"


@dataclass(frozen=True)
class Standing:
    """How far a run has come.

    Attributes:
        server: X, C and U after ``round``.
        round: the last one that is over; -1 when round 0 (the gradient start) is still to come.
        experiment: a name of the run for ever, resumed or not: clients keep their states under it.
        life: 1, and one more each time the run is resumed.
        counted: by client id, its last turn whose reply went into X and C.
        saved: the same in the last checkpoint.
    """

    server: Server
    round: int = 0
    experiment: str = ""
    life: int = 1
    counted: Mapping[int, Turn] = field(default_factory=dict)
    saved: Mapping[int, Turn] = field(default_factory=dict)

    def cohort(self, clients: Sequence[int]) -> Cohort:
        """``clients`` with what is counted of them."""
        never = Counted()
        return {i: Counted(self.counted.get(i, never.last), self.saved.get(i, never.saved)) for i in sorted(clients)}

    def after(self, round_: int, server: Server, good: Sequence[int]) -> "Standing":
        """The standing after ``round_``, in which the replies of ``good`` were counted."""
        turn = Turn(self.life, round_)
        return replace(self, server=server, round=round_, counted={**self.counted, **dict.fromkeys(good, turn)})


def write(folder: Path, standing: Standing, log: Mapping[str, Any], config: str) -> Standing:
    """Replace the checkpoint in ``folder``, at once or not at all; the standing with ``saved`` as it is now.

    Raises:
        OSError: it cannot be written; the last one still stands.
    """
    tensors = {name: getattr(standing.server, name).detach().cpu().contiguous() for name in "XCU"}
    about = {
        "round": standing.round,
        "experiment": standing.experiment,
        "life": standing.life,
        "counted": {str(i): list(turn) for i, turn in sorted(standing.counted.items())},
        "log": log,
        "config": config,
        "sha256": digest(tensors.values()),
    }
    write_whole(folder / CHECKPOINT, save(tensors, {"about": json.dumps(about)}))
    return replace(standing, saved=standing.counted)


def read(folder: Path, device: torch.device) -> tuple[Standing, dict[str, Any]]:
    """The checkpoint in ``folder``, and what the run's log knew then.

    Raises:
        InputError: there is none, or it is damaged.
    """
    about = _about(folder)
    try:
        with safe_open(folder / CHECKPOINT, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in "XCU"}
    except (SafetensorError, OSError) as error:
        raise _damaged(folder, error) from error
    if digest(tensors.values()) != about["sha256"]:
        raise _damaged(folder, "its checksum is wrong")
    counted = {int(i): Turn(*turn) for i, turn in about["counted"].items()}
    server = Server(**{name: x.to(device) for name, x in tensors.items()})
    standing = Standing(server, about["round"], about["experiment"], about["life"], counted, counted)
    return standing, about["log"]


def states_beside(folder: Path, n: int, like: ClientState, device: torch.device) -> MappedStates:
    """The clients' states of a run whose clients live on this machine, in the run's folder."""
    return MappedStates(folder / CLIENTS, n, like, device)


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
    return about


def _damaged(folder: Path, why: object) -> InputError:
    return InputError(f"resume = {folder}: its {CHECKPOINT} is damaged ({why})")
