"""Asks a Ray cluster what it has, and its machines whether they see a file: ``python -m`` this, address and file.

A process of its own, since ray.init waits for ever where nobody answers. Prints one line of JSON: the address,
resources by name, and machines by address with what they said (null: they see the file).
"""

import json
import sys
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ANSWER = 15.0  # seconds that a machine has


def main(address: str, file: str) -> dict[str, Any]:
    """What is to be printed."""
    ray.init(address=address, log_to_driver=False)

    def look(file: str) -> str | None:  # not of this module: the other machines may not have it yet
        return None if Path(file).exists() else "does not see it"

    seen: dict[str, str | None] = {}
    task = ray.remote(num_cpus=0)(look)
    asked = {
        str(node["NodeManagerAddress"]): task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(file)
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    }
    for machine, answer in asked.items():
        try:
            seen[machine] = ray.get(answer, timeout=ANSWER)
        except TaskUnschedulableError:  # it has died, and the cluster has just heard of it
            continue
        except Exception as error:
            seen[machine] = f"cannot say ({type(error).__name__})"
    return {
        "address": ray.get_runtime_context().gcs_address,
        "resources": ray.cluster_resources(),  # type: ignore[no-untyped-call]
        "machines": seen,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
