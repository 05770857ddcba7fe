import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from joblib import cpu_count
from torch import Tensor, nn

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.server import Server
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import number_of_workers, one_by_one
from fedmuon_app.engines.workers import WorkerDiedError, Workers
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation.loop import Evaluate, TrainClients, run_rounds
from fedmuon_app.federation.protocol import NEVER, Acknowledged, CallId, Failure
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.states import unnamed_states

FIRST = dict.fromkeys((0, 1, 2), Acknowledged())
CPU = torch.device("cpu")
SMALL = ["rounds=14", "evaluation.every=14", "local.steps=2", "local.batch_size=8", "federation.clients_per_round=3"]


def a_job(*overrides: str) -> Experiment:
    return build(load([*SMALL, *overrides]))


def states_of(experiment: Experiment):  # noqa: ANN201
    return nullcontext(unnamed_states(len(experiment.clients.parts), experiment.clients.initial_state(), CPU))


def play(experiment: Experiment, train: TrainClients, evaluate: Evaluate, folder: Path) -> tuple[Server, str]:
    ids = [i for i, m in experiment.sizes().items() if m]
    server = run_rounds(experiment.plan, ids, experiment.server, train, evaluate, RunLog(folder, {}))
    return server, (folder / "metrics.jsonl").read_text().split('"seconds"')[0]


@pytest.mark.parametrize("start", ["zeros", "gradient"])
@pytest.mark.parametrize("algorithm", METHODS)
def test_X_and_C_are_the_same_bits_however_many_workers_there_are(algorithm: str, start: str, tmp_path: Path) -> None:
    if start == "gradient" and METHODS[algorithm].control == "none":
        return
    experiment = a_job(f"algorithm={algorithm}", f"algorithm.start={start}")
    with states_of(experiment) as states:
        alone, said = play(experiment, one_by_one(experiment, states), experiment.evaluate, tmp_path / "0")
    for count in (1, 2) if algorithm != "fedmuon" else (1, 2, 5):
        with states_of(experiment) as states, Workers(experiment, states, count, most=16) as pool:
            server, says = play(experiment, pool.train, pool.evaluate, tmp_path / str(count))
        assert all(torch.equal(x, y) for x, y in ((server.X, alone.X), (server.C, alone.C), (server.U, alone.U)))
        assert says == said  # round, accuracy and losses


def test_a_client_that_diverges_fails_alone() -> None:
    experiment = a_job("algorithm=fedavg")
    with states_of(experiment) as states, Workers(experiment, states, 2, most=3) as pool:
        experiment.clients.objective.layout.views(experiment.server.X)["fc3.bias"].fill_(torch.inf)
        replies = pool.train(CallId(1, 1), FIRST, experiment.server.X, experiment.server.C)
        assert all(
            isinstance(reply, Failure) and "in conv1.weight, conv2.weight, fc1.weight and 7 more:" in reply.reason
            for reply in replies.values()
        )
        assert states.newest(0) == NEVER


class Breaks(nn.Module):
    """Breaks in the middle of training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(784, 10), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 5:  # that many belong to the check
            raise MemoryError("no more")
        scores: Tensor = self.layer(x.flatten(1))
        return scores


def test_what_a_worker_raises_is_raised_here_with_its_traceback() -> None:
    experiment = a_job("model=custom", "model._target_=tests.engines.test_workers.Breaks", "algorithm=fedavg")
    with (
        states_of(experiment) as states,
        Workers(experiment, states, 1, most=3) as pool,
        pytest.raises(MemoryError, match="no more") as raised,
    ):
        pool.train(CallId(1, 1), FIRST, experiment.server.X, experiment.server.C)
    assert "in forward" in raised.value.__notes__[0]


class UnportableError(Exception):
    """Pickle makes it anew with one argument too few."""

    def __init__(self, layer: str, code: int) -> None:
        super().__init__(f"{layer} broke with {code}")


class BreaksOddly(Breaks):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return super().forward(x)
        except MemoryError:
            raise UnportableError("layer", 3) from None


def test_an_exception_that_pickle_cannot_carry_keeps_its_words() -> None:
    experiment = a_job("model=custom", "model._target_=tests.engines.test_workers.BreaksOddly", "algorithm=fedavg")
    with (
        states_of(experiment) as states,
        Workers(experiment, states, 1, most=3) as pool,
        pytest.raises(RuntimeError, match="UnportableError: layer broke with 3"),
    ):
        pool.train(CallId(1, 1), FIRST, experiment.server.X, experiment.server.C)


def test_a_killed_worker_stops_the_run_with_a_sentence() -> None:
    experiment = a_job()
    with states_of(experiment) as states, Workers(experiment, states, 2, most=3) as pool:
        os.kill(pool._processes[1].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="exit code -9"):
            pool.train(CallId(1, 1), FIRST, experiment.server.X, experiment.server.C)


def test_workers_end_with_their_parent() -> None:
    experiment = a_job()
    with states_of(experiment) as states, Workers(experiment, states, 2, most=3) as pool:
        for pipe in pool._pipes:
            pipe.close()  # as when the parent is killed
        for process in pool._processes:
            process.join(timeout=10)
            assert process.exitcode == 0


def test_how_many_workers() -> None:
    cores = cpu_count()
    assert number_of_workers(load([]), "cpu") == (min(cores, 8) if cores > 1 else 0)
    assert number_of_workers(load(["federation.clients_per_round=1"]), "cpu") == (1 if cores > 1 else 0)
    assert number_of_workers(load(["engine.workers=0"]), "cpu") == 0
    assert number_of_workers(load(["engine.workers=7"]), "cpu") == 7
    assert number_of_workers(load([]), "cuda") == 0
    assert number_of_workers(load(["engine.stacked=true"]), "cpu") == 0
    with pytest.raises(InputError, match=r"engine.workers = 2: must be 0 or null with device = cuda"):
        number_of_workers(load(["engine.workers=2"]), "cuda")
    with pytest.raises(InputError, match=r"engine.workers = 2: must be 0 or null with engine.stacked"):
        number_of_workers(load(["engine.workers=2", "engine.stacked=true"]), "cpu")


@pytest.mark.slow
def test_threads_and_workers_together_do_not_wait_for_ever(tmp_path: Path) -> None:
    """OpenMP's threads of the parent were not there after the fork, and were waited for."""
    words = ["rounds=2", "evaluation.every=2", "engine.threads=2", "engine.workers=2", f"hydra.run.dir={tmp_path}/run"]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    program = [sys.executable, "-m", "fedmuon_app", *words]
    subprocess.run(program, env=environment, check=True, timeout=120, capture_output=True)
