"""A SuperLink and SuperNodes as separate processes, with TLS and authentication, on loopback."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from fedmuon_app.certs import issue
from fedmuon_app.data import sources
from tests.deployment.cluster import Cluster, cluster, wait_for
from tests.deployment.invariant import difference, same_X_as_one_process

pytestmark = pytest.mark.slow

SMALL = [
    "federation.num_clients=4",
    "federation.clients_per_round=4",
    "evaluation.every=1",
    "federation.connect_timeout=90",
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("two"), 2) as one:
        yield one


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


def digits(folder: Path, count: int) -> list[Path]:
    """Zeros and ones of the embedded digits, as pictures in class folders; the last of each is left out of them."""
    data = sources.digits().train
    rest = []
    for label in (0, 1):
        images = data.inputs[:][data.targets == label]
        for i, image in enumerate(images[: 12 * count + 1]):
            last = i == 12 * count
            place = folder / ("new" if last else f"{i % count}/{label}")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(place / f"{label}-{i}.png")
            rest += [place / f"{label}-{i}.png"] if last else []
    return rest


def test_judged_at_the_sites_stopped_kept_and_used(tmp_path: Path) -> None:
    new, run = digits(tmp_path / "pictures", 2), tmp_path / "run"
    words = ["partition=own", "dataset=none", "dataset.classes=['0','1']", "federation.num_clients=2"]
    words += ["federation.clients_per_round=2", "dataset.client_validation=0.25", "evaluation.clients=all", "rounds=8"]
    words += ["evaluation.every=1", "stop.accuracy=0.6", "checkpoint.best=true", "federation.connect_timeout=90"]
    with cluster(tmp_path, 2, data=tmp_path / "pictures") as one:
        said = finish(one.fedmuon(run, *words, "algorithm.lr=0.01"))
    assert "worst client" in said
    result = json.loads((run / "result.json").read_text())
    assert "has reached stop.accuracy = 0.6" in result["stopped"]
    assert result["rounds"] < 8
    (*_, last) = (json.loads(line)["clients"] for line in (run / "clients.jsonl").read_text().splitlines())
    assert {client: examples for client, (_, _, examples) in last.items()} == {"0": 6, "1": 6}
    assert (run / "model.best.safetensors").exists()
    command = [sys.executable, "-m", "fedmuon_app", "predict", str(run), *map(str, new), "--json"]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [set(json.loads(row)) for row in rows] == [{"file", "0", "1"}] * 2
    command = [sys.executable, "-m", "fedmuon_app", "engine=deployment", f"run_dir={tmp_path / 'dry'}", "dry_run=true"]
    dry = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert (dry.returncode, "the data is at the nodes" in dry.stderr) == (2, True)


@pytest.mark.long  # test_docs.py has the same in short
@pytest.mark.timeout(600)
def test_a_run_a_longer_one_and_their_states(two: Cluster, tmp_path: Path) -> None:
    run, words = tmp_path / "run", [*SMALL, "rounds=2", "checkpoint.every=1"]
    said = finish(two.fedmuon(run, *words))
    assert "run  round 1/2  accuracy" in said
    finish(two.fedmuon(run, "resume=auto", *words, "rounds=3"))  # a new run of Flower's, the same experiment
    same_X_as_one_process(run, [*words, "rounds=3"])
    result = json.loads((run / "result.json").read_text())
    assert (result["engine"], result["rounds"], result["dropped"]) == ("deployment", 3, {})
    assert difference(run, [two.state(0), two.state(1)], 4) < 1e-6


@pytest.mark.long  # test_docs.py has most of it
@pytest.mark.timeout(600)
def test_who_is_not_known_is_refused(two: Cluster) -> None:
    issue(two.folder / "other", ["127.0.0.1"], 2)
    issue(two.certs, [], 3)  # node-2 gets a key that nobody registers
    two.ports.append(two.ports[1])
    two.kill("node-1")
    ca, strangers = ("--root-certificates", str(two.certs / "ca.crt")), two.folder / "other"
    for trust, key, why in (
        (ca, two.certs / "node-2", "Failed to activate SuperNode"),  # not registered
        (ca, strangers / "node-1", "Failed to activate SuperNode"),  # somebody else's key
        (("--root-certificates", str(strangers / "ca.crt")), two.certs / "node-1", "certificate verify failed"),
        (("--insecure",), Path(), "Connection attempt failed"),  # plain text, without a key: tries for ever
    ):
        two.node(2, trust, key)
        wait_for(lambda why=why: two.log("node-2").count(why) >= (4 if why.startswith("Connection") else 1), 60)
        two.kill("node-2")
        (two.folder / "node-2.log").unlink()
    nodes = json.loads(two.command("supernode", "list", "own", "--format", "json"))["nodes"]
    assert len(nodes) == 2
