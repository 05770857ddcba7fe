"""A SuperLink and SuperNodes as separate processes, with TLS and authentication, on loopback."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmuon_app.certs import issue
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
