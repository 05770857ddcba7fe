from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import load
from fedmuon_app.engines.in_process import one_by_one, stacked
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation.protocol import Acknowledged, CallId, Failure
from fedmuon_app.federation.states import unnamed_states
from fedmuon_app.federation.vmap import answer_stacked, largest_stack
from tests.engines.test_workers import play

SMALL = ["rounds=4", "evaluation.every=4", "local.steps=2", "federation.clients_per_round=5"]
EARLIER, ROUND = CallId(1, 1), CallId(1, 2)
GIB = 2**30


def a_job(*overrides: str) -> Experiment:
    """β = 0.1, by class: some clients have fewer examples than a batch."""
    return build(load([*SMALL, "partition=dirichlet_by_class", "local.batch_size=24", *overrides]))


def states_of(experiment: Experiment):  # noqa: ANN201
    return nullcontext(
        unnamed_states(
            len(experiment.clients.parts), experiment.clients.initial_state(), experiment.clients.objective.device
        )
    )


@pytest.mark.parametrize(
    ("algorithm", "more", "tolerance"),
    [
        *((name, "seed=0", 1e-5) for name in METHODS),
        ("fedmuon", "model.group_norm=true", 1e-5),
        ("fedmuon", "compute=bfloat16", 1e-2),
        ("fedmuon", "algorithm.schedule=cosine", 1e-5),
        ("scaffold_adam", "algorithm.clip=0.5", 1e-5),
    ],
)
def test_a_stack_gives_the_X_and_C_of_one_client_after_the_other(
    algorithm: str, more: str, tolerance: float, tmp_path: Path
) -> None:
    experiment = a_job(f"algorithm={algorithm}", more)
    assert min(m for m in experiment.sizes().values() if m) < 24
    with states_of(experiment) as states:
        alone, _ = play(experiment, one_by_one(experiment, states), experiment.evaluate, tmp_path / "alone")
    with states_of(experiment) as states:
        together, _ = play(experiment, stacked(experiment, states, None), experiment.evaluate, tmp_path / "together")
    assert (together.X - alone.X).norm() < tolerance * alone.X.norm()
    assert (together.C - alone.C).norm() <= 100 * tolerance * alone.C.norm()
    assert not torch.equal(together.X, experiment.server.X)


def test_a_client_without_its_state_is_a_dropped_reply_and_the_others_train() -> None:
    experiment = a_job()
    with states_of(experiment) as states:
        train = stacked(experiment, states, None)
        cohort = {
            1: Acknowledged(),
            2: Acknowledged(EARLIER, EARLIER),
            3: Acknowledged(),
        }  # client 2 has no state of it
        replies = train(ROUND, cohort, experiment.server.X, experiment.server.C)
        alone = one_by_one(experiment, states)(CallId(1, 3), cohort, experiment.server.X, experiment.server.C)
    assert replies[2] == alone[2] == Failure("client 2 has no state of round 1: was its file deleted?")
    assert [type(replies[i]) for i in (1, 3)] == [Update, Update]
    assert list(train(ROUND, {2: cohort[2]}, experiment.server.X, experiment.server.C)) == [2]


def test_the_memory_given_splits_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = a_job()
    X, C, cohort = experiment.server.X, experiment.server.C, dict.fromkeys(range(1, 6), Acknowledged())
    sizes = []
    original = torch.vmap
    monkeypatch.setattr(
        torch, "vmap", lambda f: lambda kept, *rest: sizes.append(len(kept[0])) or original(f)(kept, *rest)
    )
    with states_of(experiment) as states:
        whole = answer_stacked(experiment.clients, ROUND, cohort, X, C, states, most=16)
    with states_of(experiment) as states:
        parts = answer_stacked(experiment.clients, ROUND, cohort, X, C, states, most=2)
    assert sizes == [5, 2, 2, 1]
    for i in cohort:
        assert (whole[i].X - parts[i].X).norm() < 1e-5 * X.norm()  # type: ignore[union-attr]
    assert largest_stack(experiment.clients, None) == 16
    few = largest_stack(experiment.clients, 0.05)
    assert 1 < few < largest_stack(experiment.clients, 0.1) <= 2 * few + 1
    assert largest_stack(experiment.clients, 1e-6) == 1


def test_a_client_that_diverges_fails_alone() -> None:
    experiment = a_job(
        "algorithm=fedavg", "local.steps=1", "federation.num_clients=3", "federation.clients_per_round=3"
    )
    with states_of(experiment) as states:
        bad = experiment.clients.initial_state()
        bad.M[-1] = torch.nan
        states.save(1, EARLIER, replace(bad, steps=3), ())
        cohort = {0: Acknowledged(), 1: Acknowledged(EARLIER), 2: Acknowledged()}
        replies = answer_stacked(
            experiment.clients, ROUND, cohort, experiment.server.X, experiment.server.C, states, most=3
        )
        kept = states.load(1, EARLIER)
        assert states.newest(1) == EARLIER
    assert [isinstance(replies[i], Failure) for i in range(3)] == [False, True, False]
    assert replies[1].reason.startswith("not finite after 1 local steps in fc3.bias")  # type: ignore[union-attr]
    assert kept.steps == 3


class Drops(nn.Module):
    """A model with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layers(x)
        return scores


def test_a_model_with_dropout_is_refused() -> None:
    experiment = a_job("model=custom", "model._target_=tests.federation.test_vmap.Drops")
    with (
        states_of(experiment) as states,
        pytest.raises(InputError, match=r"engine\.stacked = true: this model draws random"),
    ):
        answer_stacked(
            experiment.clients,
            ROUND,
            dict.fromkeys((1, 2), Acknowledged()),
            experiment.server.X,
            experiment.server.C,
            states,
            most=2,
        )
