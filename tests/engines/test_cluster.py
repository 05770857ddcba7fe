"""A Ray cluster of machines that share one folder and nothing else: network, /tmp and home are each one's own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from tests.deployment.cluster import wait_for
from tests.deployment.machines import machines, missing
from tests.deployment.ray_cluster import HEAD, SHARED, RayCluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

SMALL = [
    "rounds=12",
    "evaluation.every=1",
    "checkpoint.every=3",
    "federation.num_clients=6",
    "federation.clients_per_round=4",
    "local.steps=2",
    "local.batch_size=16",
    "algorithm.lr=0.003",
    "engine=simulation",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with machines(folder, ("head", "one", "two"), {}) as found:
        yield RayCluster(found, folder)


def same_as_one_process(run: Path, folder: Path) -> None:
    in_process.run(load(SMALL[:-1]), folder)
    X, Y = (load_file(place / "model.safetensors") for place in (folder, run))
    assert all(torch.equal(X[w], Y[w]) for w in X)
    assert (run / "cohorts.jsonl").read_text() == (folder / "cohorts.jsonl").read_text()


def test_machines_that_share_no_folder_are_told_so(cluster: RayCluster) -> None:
    code, said = cluster.fedmuon(*SMALL, f"engine.ray={HEAD}")
    assert code == 2
    assert f"engine.shared = null: the Ray cluster at engine.ray = {HEAD} has 3 machines" in said
    code, said = cluster.fedmuon(*SMALL, "engine.ray=auto", "engine.shared=/tmp")
    assert code == 2
    assert "not all machines of the Ray cluster at engine.ray = auto see this folder" in said
    assert "10.77.0.2 does not see it" in said
    assert "10.77.0.1 does" not in said


def test_a_cluster_gives_the_X_of_one_process(cluster: RayCluster, tmp_path: Path) -> None:
    code, said = cluster.fedmuon(*SMALL, f"engine.ray={HEAD}", f"engine.shared={SHARED}/ours", "hydra.run.dir=run")
    assert code == 2
    assert f"engine.shared = {SHARED}/ours: the folder is not there" in said
    code, said = cluster.fedmuon(*SMALL, f"engine.ray={HEAD}", f"engine.shared={SHARED}", "hydra.run.dir=/tmp/run")
    assert code == 0, said
    same_as_one_process(cluster.run_folder("run"), tmp_path)
    shared = cluster.folder / "shared"
    assert len(list(shared.glob("states/*/*/*.safetensors"))) >= 4
    assert list(shared.glob("cache/partitions/*"))
    assert not list(shared.glob("fedmuon-*"))  # the app is gone


def test_a_machine_that_is_killed_leaves_a_run_that_the_others_finish(cluster: RayCluster, tmp_path: Path) -> None:
    run = cluster.run_folder("killed")
    words = f"engine.ray={HEAD} engine.shared={SHARED} hydra.run.dir=/tmp/killed"
    trains = cluster.machines["head"].start(f"fedmuon {' '.join(SMALL)} {words}", "killed.log")
    wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= 5, 120)
    cluster.machines["two"].kill(cluster.rays["two"])
    assert trains.wait(120) == 1
    said = (cluster.folder / "head" / "killed.log").read_text()
    assert "an actor of Ray has died" in said
    code, said = cluster.fedmuon("resume=/tmp/killed", f"engine.ray={HEAD}")
    assert code == 0, said
    same_as_one_process(run, tmp_path)
    shutil.rmtree(run)
