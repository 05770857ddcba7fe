"""Twelve SuperNodes in processes of their own, of which four attack in every round."""

import json
import shutil
from pathlib import Path

import pytest

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.deployment import follow, lines_of
from fedmuon_app.engines.flwr import run_config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.superlink import stage_app
from tests.deployment import hostile
from tests.deployment.cluster import cluster, wait_for
from tests.deployment.invariant import difference

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

WORDS = [
    "federation.num_clients=12", "federation.clients_per_round=12", "partition.beta=10", "rounds=12",
    "evaluation.every=1", "checkpoint.every=1", "algorithm.lr=0.01", "algorithm.vector_lr=0.05", "local.steps=10",
    "local.batch_size=32", "federation.connect_timeout=300",
]  # fmt: skip


def test_a_run_that_is_attacked_all_the_time_ends_where_the_undisturbed_one_does(tmp_path: Path) -> None:
    app, run = stage_app(tmp_path / "app"), tmp_path / "run"
    shutil.copy(hostile.__file__, app / "hostile.py")
    project = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project.replace("fedmuon_app.flower.client_app:app", "hostile:app"))
    defence = ["federation.aggregate=multi_krum", f"federation.byzantine={hostile.ATTACKERS}"]
    c = load([*WORDS, *defence, "engine=deployment", f"run_dir={run}"])
    with cluster(tmp_path, 12) as twelve, Progress(c.rounds, "run") as progress:
        ended: dict[str, float] = {}
        wait_for(lambda: twelve.supervise(ended) or twelve.online() == 12, 300)
        run_id = twelve.flwr.submit(app, run_config(tmp_path, c))
        assert follow(lines_of(twelve.flwr.log(run_id)), progress) == ""
        assert twelve.flwr.status(run_id)[0] == "finished:completed"
        honest = [twelve.state(i) for i in range(12)]
    in_process.run(load(WORDS), tmp_path / "undisturbed")
    attacked, undisturbed = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "undisturbed")
    )
    dropped = {int(i): sum(said.values()) for i, said in attacked["dropped"].items()}
    print(attacked["final_accuracy"], undisturbed["final_accuracy"], dropped)
    assert attacked["final_accuracy"] > undisturbed["final_accuracy"] - 0.02
    assert min(dropped.get(i, 0) for i in range(hostile.ATTACKERS)) >= 10
    assert difference(run, honest, 12) < 1e-6
