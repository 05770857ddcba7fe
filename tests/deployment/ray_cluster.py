"""A Ray cluster of machines that share one folder and nothing else: network, /tmp, home and package are their own."""

import sys
import tempfile
from pathlib import Path

import psutil

from fedmuon_app.engines.superlink import PACKAGE
from tests.deployment.cluster import wait_for
from tests.deployment.machines import NETWORK, Machine

SHARED = "/srv/cluster"
HEAD = f"{NETWORK}.1:6379"


class RayCluster:
    """A machine named head, which plays no clients, and others with a core each."""

    def __init__(self, found: dict[str, Machine], folder: Path, cgroups: dict[str, Path] | None = None) -> None:
        """Start Ray on all of them; those in ``cgroups`` below these folders of a control group."""
        self.machines, self.folder, self._cgroups = found, folder, cgroups or {}
        self.rays: dict[str, psutil.Popen] = {}
        for name, machine in found.items():
            temporary, (shared, own) = Path(tempfile.gettempdir()), (folder / "shared", folder / name / "tmp")
            shared.mkdir(exist_ok=True)
            own.mkdir()
            for seen in {PACKAGE.parent, Path(sys.prefix)}:  # where they lie below /tmp, they stay in sight
                if seen.is_relative_to(temporary):
                    (own / seen.relative_to(temporary)).mkdir(parents=True, exist_ok=True)
                    machine.root("mount", "--bind", str(seen), str(own / seen.relative_to(temporary)))
            machine.root("mount", "--bind", str(shared), SHARED)
            machine.root("mount", "--rbind", str(own), str(temporary))
            if name != "head":  # what clients run comes by the folder that is shared
                machine.root("mount", "-t", "tmpfs", "tmpfs", str(PACKAGE))
            machine.env |= {"HOME": "/tmp", "TMPDIR": "/tmp"}
            del machine.env["XDG_CACHE_HOME"]
            self.join(name)

    def join(self, name: str) -> None:
        """Start Ray on a machine."""
        machine, group = self.machines[name], self._cgroups.get(name)
        head = "--head --port=6379 --num-cpus=0 --include-dashboard=false"
        role = head if name == "head" else f"--address={HEAD} --num-cpus=1"
        more = f"--node-ip-address={machine.address} --object-store-memory=500000000 --block"
        below = f"echo $$ > {group}/cgroup.procs;" if group else ""
        self.rays[name] = machine.start(f"bash -c '{below} exec ray start {role} {more}'", "ray.log")
        wait_for(lambda: "Ray runtime started" in (machine.folder / "ray.log").read_text(), 60)

    def fedmuon(self, *words: str, seconds: float = 240) -> tuple[int, str]:
        """Call ``fedmuon`` on the head, in its /tmp: the exit code, and what it printed."""
        done = self.machines["head"].run(" ".join(("cd /tmp && fedmuon", *words)), seconds)
        return done.returncode, done.stdout + done.stderr

    def run_folder(self, name: str) -> Path:
        """Where a run in the head's /tmp lies outside of it."""
        return self.folder / "head" / "tmp" / name
