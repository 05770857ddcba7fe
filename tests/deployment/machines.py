"""Machines of their own on one: a network and a mount namespace each, on one virtual switch, as root on Linux."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from fedmuon_app.engines.flwr import QUIET
from tests.deployment.cluster import BIN, wait_for

NETWORK = "10.77.0"
USERS = Path(tempfile.gettempdir()) / "fedmuon-tests-machines"
MOUNTS = ("/etc/fedmuon", "/var/lib/fedmuon", "/srv/pictures", "/srv/cluster")  # places that the docs name


def missing() -> str:
    """Why machines cannot be had here; empty when they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    if any(shutil.which(tool) is None for tool in ("ip", "unshare", "nsenter", "mount")):
        return "network namespaces need ip (iproute2), unshare, nsenter and mount"
    links = "ip link add switch type bridge && ip link add port type veth peer name eth0"
    needed = f"mount --bind /etc/hosts /etc/hosts && {links}"
    apart = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", needed]
    tried = subprocess.run(apart, check=False, capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"network namespaces are refused here: {tried.stderr.strip()}"


class Machine:
    """A namespace with an address, a hosts file, a home, and folders of its own under MOUNTS."""

    def __init__(self, folder: Path, number: int, hosts: Mapping[str, str]) -> None:
        self.folder, self.address = folder, f"{NETWORK}.{number}"
        self.processes: list[psutil.Popen] = []
        folder.mkdir(parents=True)
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sleep", "infinity"]
        )
        wait_for(lambda: self._apart(), 10)
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()))
        self.root("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
        for place in MOUNTS:
            inside = folder / place.strip("/").replace("/", "_")
            inside.mkdir()
            self.root("mount", "--bind", str(inside), place)
        own = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.env = {k: v for k, v in os.environ.items() if k not in ("FLWR_HOME", "XDG_STATE_HOME")} | QUIET | own

    @property
    def pid(self) -> int:
        return self._holder.pid

    def _apart(self) -> bool:
        link = Path(f"/proc/{self.pid}/ns/net")
        return link.is_symlink() and link.readlink() != Path("/proc/self/ns/net").readlink()

    def inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", f"--wd={self.folder}", *command]

    def root(self, *command: str) -> None:
        subprocess.run(self.inside(command), check=True)

    def path(self, place: str) -> Path:
        """Where a file of the machine's lies outside of it."""
        for mount in MOUNTS:
            if place.startswith(mount):
                return self.folder / mount.strip("/").replace("/", "_") / place[len(mount) :].strip("/")
        return self.folder / place

    def run(self, command: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        words = self.inside(["bash", "-c", command])
        return subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False, timeout=timeout
        )

    def start(self, command: str, log: str) -> psutil.Popen:
        with (self.folder / log).open("ab") as out:
            self.processes.append(
                psutil.Popen(
                    self.inside(["bash", "-c", f"exec {command}"]), cwd=self.folder, env=self.env,
                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip
        return self.processes[-1]

    def kill(self, process: psutil.Popen) -> None:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        process.wait()

    def stop(self) -> None:
        """Ctrl-C to all that was started."""
        for process in self.processes:
            process.terminate()
        while self.processes:
            self.processes.pop().wait(30)

    def end(self) -> None:
        for process in self.processes:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        self._holder.kill()
        self._holder.wait()


@contextmanager
def places() -> Iterator[None]:
    """MOUNTS are there, and those that tests made go with their last user: others may run beside this one.

    A folder that is taken away is gone in every mount namespace, with what is mounted on it.
    """
    with USERS.open("a+") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        made = [place for place in MOUNTS if not Path(place).exists()]
        for place in made:
            Path(place).mkdir(parents=True, exist_ok=True)
        users.writelines(f"{place}\n" for place in made)
        users.flush()
        try:
            yield
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                users.seek(0)
                for place in users.read().split():
                    with suppress(OSError):
                        Path(place).rmdir()
                users.truncate(0)


@contextmanager
def machines(folder: Path, names: Sequence[str], hosts: Mapping[str, str]) -> Iterator[dict[str, Machine]]:
    """Machines by name, with addresses NETWORK.1, .2, …; the first one has the switch."""
    with ExitStack() as stack:
        stack.enter_context(places())
        found: dict[str, Machine] = {}
        for number, name in enumerate(names, start=1):
            found[name] = Machine(folder / name, number, {"localhost": "127.0.0.1", **hosts})
            stack.callback(found[name].end)
        first = found[names[0]]
        first.root("ip", "link", "add", "switch", "type", "bridge")
        first.root("ip", "address", "add", f"{first.address}/24", "dev", "switch")
        first.root("ip", "link", "set", "switch", "up")
        for number, machine in enumerate(found.values(), start=1):
            machine.root("ip", "link", "set", "lo", "up")
            if machine is not first:
                peer = ["peer", "name", "eth0", "netns", str(machine.pid)]
                first.root("ip", "link", "add", f"port{number}", "type", "veth", *peer)
                first.root("ip", "link", "set", f"port{number}", "master", "switch", "up")
                machine.root("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
                machine.root("ip", "link", "set", "eth0", "up")
        yield found
