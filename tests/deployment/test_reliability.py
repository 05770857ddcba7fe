"""Kills in real processes. The figures are in docs/reliability.md; make test-long runs this."""

import json
import random
import time
from pathlib import Path

import psutil
import pytest

from fedmuon_app.federation import checkpoint
from tests.deployment.cluster import cluster, wait_for, workers
from tests.deployment.invariant import difference, same_X_as_one_process
from tests.deployment.test_deployment import SMALL, finish

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

PATIENT = ["federation.round_timeout=120", "federation.connect_timeout=120"]


def rounds_of(run: Path) -> int:
    return checkpoint.rounds_in(run)


def test_ten_rounds_on_four_nodes_give_the_X_of_one_process(tmp_path: Path) -> None:
    words = [*SMALL, "rounds=10"]
    with cluster(tmp_path, 4) as four:
        finish(four.fedmuon(tmp_path / "run", *words))
        same_X_as_one_process(tmp_path / "run", words)
        assert difference(tmp_path / "run", [four.state(i) for i in range(4)], 4) < 1e-6


def test_a_node_that_is_killed_in_mid_round_goes_on_where_it_was(tmp_path: Path) -> None:
    words = [*SMALL, "rounds=8", "checkpoint.every=1", "federation.min_replies=2", "federation.grace=15", *PATIENT]
    with cluster(tmp_path, 2) as two:
        ended: dict[str, float] = {}
        process = two.fedmuon(tmp_path / "run", *words)
        wait_for(lambda: rounds_of(tmp_path / "run") >= 2, 300)
        wait_for(lambda: child(two.processes["node-1"], "flwr-clientapp"), 60)
        two.kill("node-1")
        while process.poll() is None:
            time.sleep(5)
            two.supervise(ended)
        finish(process)
        result = json.loads((tmp_path / "run" / "result.json").read_text())
        assert {"1", "3"} & set(result["dropped"])
        assert difference(tmp_path / "run", [two.state(0), two.state(1)], 4) < 1e-6
        standing, _ = checkpoint.read(tmp_path / "run")
        assert max(standing.counted[i].round for i in (1, 3)) == 8


def test_workers_that_are_killed_at_random_moments_cost_no_reply(tmp_path: Path) -> None:
    words, draw, kills = [*SMALL, "rounds=10"], random.Random(5), 0
    with cluster(tmp_path, 2) as two:
        process = two.fedmuon(tmp_path / "run", *words)
        while process.poll() is None:
            time.sleep(draw.uniform(0.5, 4))
            for worker in [p for i in range(2) for p in workers(two.state(i))][:1]:
                worker.kill()
                kills += 1
        finish(process)
        assert kills >= 5
        assert not json.loads((tmp_path / "run" / "result.json").read_text())["dropped"]
        same_X_as_one_process(tmp_path / "run", words)
        assert difference(tmp_path / "run", [two.state(0), two.state(1)], 4) < 1e-6
        two.kill("node-0")
        wait_for(lambda: not workers(two.state(0)), 10)


def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    """Nodes, their workers, the run's server and the SuperLink; one run to its end."""
    run, draw = tmp_path / "run", random.Random(4)
    words = [*SMALL, *PATIENT, "resume=auto", "rounds=100", "checkpoint.every=2", "federation.min_replies=2"]
    kills: list[str] = []
    ended: dict[str, float] = {}
    with cluster(tmp_path, 2) as two:
        process = two.fedmuon(run, *words)
        next_kill = time.monotonic() + draw.uniform(15, 60)
        while not (run / "result.json").exists() or process.poll() is None:
            time.sleep(1)
            two.supervise(ended)
            if process.poll() is not None and not (run / "result.json").exists():
                process = two.fedmuon(run, *words)
            if time.monotonic() < next_kill or len(kills) == 20:
                continue
            victim = draw.choice(["node-0", "node-1", "server", "server", "superlink", "worker"])
            if victim == "worker":
                found = [p for i in range(2) for p in workers(two.state(i))]
                if not found:
                    continue
                draw.choice(found).kill()
            elif victim == "server":
                server = two.serverapp()
                if server is None:
                    continue
                server.kill()
            else:
                two.kill(victim)
                if victim == "superlink":
                    two.superlink()
            kills.append(f"{victim} after round {rounds_of(run) if (run / checkpoint.CHECKPOINT).exists() else 0}")
            print(kills[-1], flush=True)
            next_kill = time.monotonic() + draw.uniform(15, 60)
        process.wait()
        off = difference(run, [two.state(0), two.state(1)], 4)
        result = json.loads((run / "result.json").read_text())
        print(
            f"{len(kills)} kills, {result['rounds']} rounds, |C - mean C_i| / rms |C_i| = {off:.1e}", result["dropped"]
        )
        assert result["rounds"] == 100
        assert len(kills) == 20
        assert off < 1e-6


def child(process: psutil.Process, name: str) -> bool:
    return any(name in word for one in process.children(recursive=True) for word in command_line(one))


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()[:3]
    except psutil.Error:
        return []
