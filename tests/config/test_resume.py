from dataclasses import asdict

import pytest

from fedmuon_app.config import dump, load, refuse_another, resumed
from fedmuon_app.errors import InputError

SAVED = dump(load(["algorithm=scaffold", "rounds=60", "partition.beta=3"]))


def test_a_run_goes_on_with_its_own_configuration_and_what_may_change() -> None:
    words = ["resume=/run", "rounds=90", "engine=simulation", "evaluation.every=3", "hydra.run.dir=x", "device=cpu"]
    config = resumed("/run", SAVED, words)
    assert (config.algorithm.name, config.partition.beta) == ("scaffold", 3.0)
    assert (config.rounds, config.engine.name, config.evaluation.every, config.resume) == (90, "simulation", 3, "/run")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("algorithm.lr=0.5", r"algorithm.lr = 0.5: the run to resume in /run has 0.1"),
        ("seed=1", r"seed = 1: the run to resume in /run has 0"),
        ("algorithm=fedmuon", "leave algorithm=fedmuon out"),
        ("experiment=fashion_mnist_homogeneous", "leave experiment=fashion_mnist_homogeneous out"),
        ("model=lenet", "leave model=lenet out"),
        ("+x=1", r"leave \+x=1 out"),
        ("engine.wokers=3", "wokers"),
        ("rounds=-1", "rounds = -1"),
        ("federation.num_clients=20", "federation.num_clients = 20: the run to resume in /run has 16"),
    ],
)
def test_what_the_run_is_does_not_change(word: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        resumed("/run", SAVED, ["resume=/run", word])


def test_a_schedule_over_so_many_rounds_is_not_made_longer() -> None:
    saved = dump(load(["algorithm.schedule=cosine", "rounds=60"]))
    assert resumed("/run", saved, ["resume=/run", "rounds=60"]).rounds == 60
    with pytest.raises(InputError, match=r"rounds = 90: the run to resume in /run has a schedule \(cosine\) over 60"):
        resumed("/run", saved, ["resume=/run", "rounds=90"])


def test_another_run_in_the_folder_is_noticed() -> None:
    was = asdict(load(["rounds=60"]))
    refuse_another("/run", was, load(["rounds=90", "engine.workers=0", "federation.grace=1"]))
    with pytest.raises(InputError, match=r"local.batch_size = 32: the run to resume in /run has 64"):
        refuse_another("/run", was, load(["local.batch_size=32"]))
