"""What Ray has for simulated clients, asked before a run starts: Flower would wait, or fail without the reason."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from joblib import cpu_count

from fedmuon_app.config.schema import Engine
from fedmuon_app.errors import InputError

ANSWER = 30.0  # seconds that a cluster has to say what it has
ASK = "import json, ray; ray.init(log_to_driver=False); print(json.dumps(ray.cluster_resources()))"


def check_resources(engine: Engine, gpus: int) -> None:
    """Compare what a client is to have with what there is: on this machine, or in the cluster at RAY_ADDRESS.

    Args:
        engine: of the configuration.
        gpus: that this machine has.

    Raises:
        InputError: it is more than there is, or the cluster does not answer.
    """
    address = os.environ.get("RAY_ADDRESS")
    there = cluster(address) if address else {"CPU": cpu_count(), "GPU": gpus}
    where = f"the Ray cluster at RAY_ADDRESS = {address}" if address else "this machine"
    for key, wanted, name, unit in (
        ("cpus_per_client", engine.cpus_per_client, "CPU", "cores"),
        ("gpus_per_client", engine.gpus_per_client, "GPU", "GPUs"),
    ):
        if wanted > there.get(name, 0):
            raise InputError(f"engine.{key} = {wanted:g}: {where} has {there.get(name, 0):g} {unit}")


def cluster(address: str) -> Mapping[str, float]:
    """The resources of the Ray cluster at ``address``, by name.

    Raises:
        InputError: nobody answers there.
    """
    try:
        asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=ANSWER, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"RAY_ADDRESS = {address}: no Ray cluster answers there in {ANSWER:.0f} s") from None
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"RAY_ADDRESS = {address}: no Ray cluster answers there ({said})")
    resources: dict[str, float] = json.loads(asked.stdout.splitlines()[-1])
    return resources
