"""What Ray has for simulated clients, asked before a run starts: Flower would wait, or fail without the reason."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from joblib import cpu_count

from fedmuon_app.config.schema import Engine
from fedmuon_app.errors import InputError

ANSWER = 30.0  # seconds that a cluster has to say what it has


@dataclass(frozen=True)
class Cluster:
    """Where simulated clients train.

    Attributes:
        address: of the Ray cluster; None: this machine, where Flower starts Ray.
        resources: what there is, by Ray's names.
        machines: by address, why it does not see ``engine.shared``; None: it does.
    """

    address: str | None = None
    resources: dict[str, float] = field(default_factory=dict)
    machines: dict[str, str | None] = field(default_factory=dict)


def check_resources(engine: Engine, gpus: int) -> str | None:
    """Compare what a client is to have with what there is: on this machine, or in the cluster that is named.

    Args:
        engine: of the configuration.
        gpus: that this machine has.

    Returns:
        The cluster's address; None: there is none, and Flower starts Ray here.

    Raises:
        InputError: it is more than there is, the cluster does not answer, or not all of it sees what they share.
    """
    key, named = ("engine.ray", engine.ray) if engine.ray else ("RAY_ADDRESS", os.environ.get("RAY_ADDRESS"))
    if engine.shared and not Path(engine.shared).is_dir():
        raise InputError(f"engine.shared = {engine.shared}: the folder is not there")
    there = Cluster(None, {"CPU": cpu_count(), "GPU": gpus})
    where = "this machine"
    if named:
        there = cluster(f"{key} = {named}", named, engine.shared)
        where = f"the Ray cluster at {key} = {named}"
        _refuse_apart(engine.shared, where, there)
    for wanted_by, wanted, name, unit in (
        ("cpus_per_client", engine.cpus_per_client, "CPU", "cores"),
        ("gpus_per_client", engine.gpus_per_client, "GPU", "GPUs"),
    ):
        if wanted > there.resources.get(name, 0):
            raise InputError(f"engine.{wanted_by} = {wanted:g}: {where} has {there.resources.get(name, 0):g} {unit}")
    return there.address


def cluster(said: str, address: str, shared: str | None) -> Cluster:
    """The Ray cluster at ``address``.

    Args:
        said: the key and the address, for errors.
        address: HOST:PORT, or auto: the cluster that this machine is of.
        shared: a folder that its machines are asked for.

    Raises:
        InputError: nobody answers there, or nothing can be written in the folder.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=shared, prefix="fedmuon-seen-") as file:
            command = [sys.executable, "-m", "fedmuon_app.engines.ray_machines", address, file.name]
            asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"{said}: no Ray cluster answers there in {ANSWER:.0f} s") from None
    except OSError as error:
        raise InputError(f"engine.shared = {shared}: nothing can be written there ({error.strerror})") from error
    if asked.returncode:
        reason = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"{said}: no Ray cluster answers there ({reason})")
    return Cluster(**json.loads(asked.stdout.splitlines()[-1]))


def _refuse_apart(shared: str | None, where: str, there: Cluster) -> None:
    """Refuse machines that have nothing in common.

    Raises:
        InputError: there are several, and no folder that all of them see.
    """
    if shared is None and len(there.machines) > 1:
        raise InputError(
            f"engine.shared = null: {where} has {len(there.machines)} machines, which need a folder that all of them "
            "see, at one path, for the app, the data and what clients keep (docs/cluster.md)"
        )
    apart = [f"{machine} {reason}" for machine, reason in there.machines.items() if reason]
    if shared is not None and apart:
        raise InputError(f"engine.shared = {shared}: not all machines of {where} see this folder: {', '.join(apart)}")
