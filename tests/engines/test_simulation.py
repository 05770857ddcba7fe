"""Flower's Ray engine, with real processes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.engines.flwr import FlowerError
from fedmuon_app.engines.progress import Progress
from fedmuon_app.engines.simulation import follow, nodes, submit
from fedmuon_app.engines.superlink import SuperLink, stage_app, superlink
from tests.deployment.cluster import wait_for

pytestmark = pytest.mark.slow

RECORDS = ("cohorts.jsonl", "result.json")
SMALL = [
    "rounds=14",
    "evaluation.every=14",
    "evaluation.diagnostics=20",
    "federation.num_clients=6",
    "federation.clients_per_round=3",
    "local.steps=2",
    "local.batch_size=16",
]


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SuperLink, Path]]:
    folder = tmp_path_factory.mktemp("flower")
    with superlink(folder / "flower.log") as link:
        yield link, stage_app(folder / "app")


def simulate(flower: tuple[SuperLink, Path], overrides: list[str], folder: Path) -> None:
    link, app = flower
    config = load([*overrides, "engine=simulation", f"run_dir={folder}"])
    with Progress(config.rounds, config.algorithm.name) as progress:
        follow(link, submit(link, config, app), folder, progress)


def same_X_and_cohorts_as_one_process(run: Path, overrides: list[str], rounds: int = 14) -> None:
    alone = run.parent / "alone"
    in_process.run(load(overrides), alone)
    X, Y = (load_file(folder / "model.safetensors") for folder in (alone, run))
    assert X.keys() == Y.keys()
    assert all(torch.equal(X[w], Y[w]) for w in X)
    cohorts, results = ([(f / name).read_text() for f in (alone, run)] for name in RECORDS)
    assert cohorts[0] == cohorts[1]
    assert cohorts[0].count("\n") == rounds
    lines = [json.loads((f / "metrics.jsonl").read_text().splitlines()[-1]) for f in (alone, run)]
    assert {**lines[0], "seconds": 0} == {**lines[1], "seconds": 0}
    assert json.loads(results[0]).keys() == json.loads(results[1]).keys()


# fedmuon and scaffold have their comparison in the tests of the command and of `flwr run` below; what differs between
# methods on Flower's wire is tested without its processes too (tests/flower)
@pytest.mark.long
@pytest.mark.parametrize("algorithm", sorted(set(METHODS) - {"fedmuon", "scaffold"}))
def test_it_gives_the_X_and_the_cohorts_of_one_process(
    algorithm: str, flower: tuple[SuperLink, Path], tmp_path: Path
) -> None:
    overrides = [*SMALL, f"algorithm={algorithm}"]
    simulate(flower, overrides, tmp_path / "flower")
    same_X_and_cohorts_as_one_process(tmp_path / "flower", overrides)


def test_a_run_that_fails_says_what_the_clients_said(flower: tuple[SuperLink, Path], tmp_path: Path) -> None:
    diverging = [*SMALL, "algorithm=fedavg", "algorithm.lr=1e30", "algorithm.momentum=heavy_ball"]
    with pytest.raises(
        FlowerError,
        match=r"finished:failed: no good reply in 3 rounds in a row: not finite .*the step size is too large",
    ):
        simulate(flower, diverging, tmp_path / "run")


def killed(name: str, link: SuperLink, folder: Path, after: int) -> bool:
    """SIGKILL for the first process of that name, once so many rounds have been evaluated."""
    metrics = folder / "metrics.jsonl"
    if not metrics.exists() or metrics.read_text().count("\n") < after:
        return False
    for process in link.processes():
        if name in " ".join(process.cmdline()):
            process.kill()
            return True
    return False


@pytest.mark.parametrize(
    ("victim", "said", "after", "rounds"),
    [
        ("flwr-simulation", "the run is finished:failed", 3, 14),
        pytest.param("flwr-simulation", "the run is finished:failed", 37, 60, marks=pytest.mark.long),
        pytest.param("ray::ClientAppActor", "an actor of Ray has died", 3, 14, marks=pytest.mark.long),
    ],
)
def test_a_run_whose_process_is_killed_goes_on_from_its_checkpoint(
    victim: str, said: str, after: int, rounds: int, flower: tuple[SuperLink, Path], tmp_path: Path
) -> None:
    (link, app), run = flower, tmp_path / "run"
    overrides = [*SMALL, "evaluation.every=1", "checkpoint.every=4", f"rounds={rounds}"]
    c = load([*overrides, "engine=simulation", f"run_dir={run}", "resume=auto"])
    run_id = submit(link, c, app)
    wait_for(lambda: killed(victim, link, run, after), 120)
    with Progress(rounds, "killed") as progress, pytest.raises(FlowerError, match=said):
        follow(link, run_id, run, progress)
    with Progress(rounds, "resumed") as progress:
        follow(link, submit(link, c, app), run, progress)
    same_X_and_cohorts_as_one_process(run, overrides, rounds)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files that no other test's run uses, with a name short enough for sockets in it."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_the_command_leaves_no_process_and_no_temporary_folder(tmp_path: Path, temporary: Path) -> None:
    mark = f"FEDMUON_TEST_MARK={tmp_path}"
    run = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "fedmuon_app", *SMALL, "engine=simulation", f"hydra.run.dir={run}"],
        env=os.environ
        | {"FEDMUON_TEST_MARK": str(tmp_path), "TMPDIR": str(temporary), "RAY_TMPDIR": tempfile.gettempdir()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"results: {run}" in done.stdout
    assert {".hydra", "metrics.jsonl", "result.json", "model.safetensors"} <= {f.name for f in run.iterdir()}
    assert not [p for p in psutil.process_iter() if mark in environment(p)]
    assert not [*temporary.glob("fedmuon-*")]
    same_X_and_cohorts_as_one_process(run, SMALL)


def environment(process: psutil.Process) -> list[str]:
    try:
        return [f"{k}={v}" for k, v in process.environ().items()]
    except psutil.Error:
        return []


def test_flwr_run_by_hand_takes_the_words_of_the_command_line(flower: tuple[SuperLink, Path], tmp_path: Path) -> None:
    link, app = flower
    overrides = [*SMALL, "algorithm=scaffold", "partition.beta=10"]
    words = " ".join([*overrides, f"run_dir={tmp_path / 'hand'}"])
    config = tmp_path / "config.toml"
    config.write_text(f'overrides = "{words}"\n')
    run_id = link.submit(app, config, nodes(2, 1, 0))  # Flower's default number of nodes
    with Progress(14, "scaffold") as progress:
        follow(link, run_id, tmp_path / "hand", progress)
    same_X_and_cohorts_as_one_process(tmp_path / "hand", overrides)
    assert (tmp_path / "hand" / ".hydra" / "config.yaml").read_text().startswith("rounds: 14")


def test_a_run_that_flower_refuses_says_why(flower: tuple[SuperLink, Path], tmp_path: Path) -> None:
    link, app = flower
    config = tmp_path / "config.toml"
    config.write_text('unknown = "key"\n')
    with pytest.raises(FlowerError, match=r"refuses|unknown"):
        link.submit(app, config, nodes(2, 1, 0))


@pytest.mark.long  # Ray's agents take their time
def test_nothing_is_left_when_the_command_is_killed(tmp_path: Path) -> None:
    """The kernel ends its SuperLink, and the run's own process ends when it sees that the command is gone."""
    words = ["engine=simulation", "rounds=5000", *SMALL[3:], "evaluation.every=5000", f"hydra.run.dir={tmp_path}/run"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = subprocess.Popen([sys.executable, "-m", "fedmuon_app", *words], env=environment)
    cohorts = tmp_path / "run" / "cohorts.jsonl"
    try:
        wait_for(lambda: cohorts.exists() and cohorts.stat().st_size > 0, 150)
    finally:
        below = psutil.Process(command.pid).children(recursive=True)
        command.kill()
        command.wait()
    _, left = psutil.wait_procs(below, timeout=180)  # Ray's agents look for their parents at times
    assert not [process.cmdline() for process in left]


class Told:
    """Takes a run, and starts nothing."""

    federation = ""

    def submit(self, app: Path, run_config: Path, federation: str) -> str:
        self.federation = federation
        return "7"


@pytest.mark.parametrize(("n", "S", "count"), [(16, 8, 16), (10_000, 20, 256), (10_000, 100, 400)])
def test_many_clients_share_flowers_nodes(n: int, S: int, count: int, tmp_path: Path) -> None:
    link = Told()
    words = [f"federation.num_clients={n}", f"federation.clients_per_round={S}", f"run_dir={tmp_path}"]
    submit(link, load(["engine=simulation", *words]), tmp_path / "app")  # type: ignore[arg-type]
    assert link.federation.startswith(f"num-supernodes={count} ")
