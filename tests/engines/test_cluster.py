"""A Ray cluster of machines that share one folder and nothing else: network, /tmp and home are each one's own."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.superlink import PACKAGE
from tests.deployment.cluster import wait_for
from tests.deployment.machines import Machine, machines, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

SHARED = "/srv/cluster"
HEAD = "10.77.0.1:6379"
SMALL = [
    "rounds=12",
    "evaluation.every=1",
    "checkpoint.every=3",
    "federation.num_clients=6",
    "federation.clients_per_round=4",
    "local.steps=2",
    "local.batch_size=16",
    "algorithm.lr=0.003",
]


class Cluster:
    """A head, which plays no clients, and two machines with a core each."""

    def __init__(self, found: dict[str, Machine], folder: Path) -> None:
        self.machines, self.folder = found, folder
        self.rays: dict[str, psutil.Popen] = {}
        for name, machine in found.items():
            for inside, place in ((folder / "shared", SHARED), (folder / name / "tmp", tempfile.gettempdir())):
                inside.mkdir(exist_ok=True)
                machine.root("mount", "--bind", str(inside), place)
            if name != "head":  # what clients run comes by the folder that is shared
                machine.root("mount", "-t", "tmpfs", "tmpfs", str(PACKAGE))
            machine.env |= {"HOME": "/tmp", "TMPDIR": "/tmp"}
            del machine.env["XDG_CACHE_HOME"]
            self.join(name)

    def join(self, name: str) -> None:
        machine = self.machines[name]
        head = "--head --port=6379 --num-cpus=0 --include-dashboard=false"
        role = head if name == "head" else f"--address={HEAD} --num-cpus=1"
        more = f"--node-ip-address={machine.address} --object-store-memory=100000000 --block"
        self.rays[name] = machine.start(f"ray start {role} {more}", "ray.log")
        wait_for(lambda: "Ray runtime started" in (machine.folder / "ray.log").read_text(), 60)

    def fedmuon(self, *words: str) -> tuple[int, str]:
        command = " ".join(("cd /tmp && fedmuon", *SMALL, "engine=simulation", *words))
        done = self.machines["head"].run(command, 240)
        return done.returncode, done.stdout + done.stderr

    def run_folder(self, name: str) -> Path:
        return self.folder / "head" / "tmp" / name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with machines(folder, ("head", "one", "two"), {}) as found:
        yield Cluster(found, folder)


def same_as_one_process(run: Path, folder: Path) -> None:
    in_process.run(load(SMALL), folder)
    X, Y = (load_file(place / "model.safetensors") for place in (folder, run))
    assert all(torch.equal(X[w], Y[w]) for w in X)
    assert (run / "cohorts.jsonl").read_text() == (folder / "cohorts.jsonl").read_text()


def test_machines_that_share_no_folder_are_told_so(cluster: Cluster) -> None:
    code, said = cluster.fedmuon(f"engine.ray={HEAD}")
    assert code == 2
    assert f"engine.shared = null: the Ray cluster at engine.ray = {HEAD} has 3 machines" in said
    code, said = cluster.fedmuon("engine.ray=auto", "engine.shared=/tmp")
    assert code == 2
    assert "not all machines of the Ray cluster at engine.ray = auto see this folder" in said
    assert "10.77.0.2 does not see it" in said
    assert "10.77.0.1 does" not in said


def test_a_cluster_gives_the_X_of_one_process(cluster: Cluster, tmp_path: Path) -> None:
    code, said = cluster.fedmuon(f"engine.ray={HEAD}", f"engine.shared={SHARED}/ours", "hydra.run.dir=run")
    assert code == 2
    assert f"engine.shared = {SHARED}/ours: there is no such folder" in said
    code, said = cluster.fedmuon(f"engine.ray={HEAD}", f"engine.shared={SHARED}", "hydra.run.dir=/tmp/run")
    assert code == 0, said
    same_as_one_process(cluster.run_folder("run"), tmp_path)
    shared = cluster.folder / "shared"
    assert len(list(shared.glob("states/*/*/*.safetensors"))) >= 4
    assert list(shared.glob("cache/partitions/*"))
    assert not list(shared.glob("fedmuon-*"))  # the app is gone


def test_a_machine_that_is_killed_leaves_a_run_that_the_others_finish(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.run_folder("killed")
    words = f"engine.ray={HEAD} engine.shared={SHARED} hydra.run.dir=/tmp/killed"
    trains = cluster.machines["head"].start(f"fedmuon {' '.join(SMALL)} engine=simulation {words}", "killed.log")
    wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 5, 120)
    cluster.machines["two"].kill(cluster.rays["two"])
    assert trains.wait(120) == 1
    said = (cluster.folder / "head" / "killed.log").read_text()
    assert "an actor of Ray has died" in said
    code, said = cluster.fedmuon("resume=/tmp/killed", f"engine.ray={HEAD}")
    assert code == 0, said
    same_as_one_process(run, tmp_path)
    shutil.rmtree(run)
