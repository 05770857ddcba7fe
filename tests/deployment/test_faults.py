"""Losses, delays and lies of clients on Flower's Ray engine, in its real processes."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.simulation import follow, submit
from fedmuon_app.engines.superlink import stage_app, superlink
from fedmuon_app.federation import checkpoint
from tests.deployment import faulty
from tests.deployment.invariant import bend

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_a_run_with_losses_delays_and_a_liar_ends_where_the_undisturbed_one_does(tmp_path: Path) -> None:
    app = stage_app(tmp_path / "app")
    shutil.copy(faulty.__file__, app / "faulty.py")
    project = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(project.replace("fedmuon_app.flower.client_app:app", "faulty:app"))
    disturbed = ["federation.round_timeout=60", "federation.min_replies=6", "federation.grace=0.5"]
    c = load([*disturbed, "engine=simulation", f"run_dir={tmp_path / 'run'}"])
    with superlink(tmp_path / "flower.log") as link, Progress(c.rounds, "run") as progress:
        follow(link, submit(link, c, app), tmp_path / "run", progress)
    in_process.run(load([]), tmp_path / "undisturbed")
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "undisturbed")]
    standing, _ = checkpoint.read(tmp_path / "run")
    experiment = in_process.build(c)
    states = checkpoint.states_beside(
        tmp_path / "run", len(experiment.clients.parts), experiment.clients.initial_state(), torch.device("cpu")
    )
    off = bend(standing, lambda client: states, c.federation.num_clients)
    late = (tmp_path / "run" / "run.log").read_text().count("too late: the reply")
    print([result["final_accuracy"] for result in results], results[0]["dropped"], f"{late} late, {off:.1e}")
    assert off < 1e-6
    assert results[0]["dropped"][str(faulty.LIAR)]["X_i is not finite"] > 30
    assert late > 10
    assert results[0]["final_accuracy"] > results[1]["final_accuracy"] - 0.02
