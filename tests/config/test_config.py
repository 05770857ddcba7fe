import importlib
import re
from pathlib import Path

import pytest

from benchmarks import attacks
from fedmuon_app.algorithms.aggregation import RULES
from fedmuon_app.algorithms.lmo import SCALES
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.algorithms.schedules import SHAPES
from fedmuon_app.config import conf_dir, dump, load, loads, names, split
from fedmuon_app.data.augment import AUGMENTATIONS
from fedmuon_app.engines import ENGINES
from fedmuon_app.errors import InputError
from fedmuon_app.federation.callbacks import TRACKERS
from fedmuon_app.method_of import build_method

CHOICES = sorted(path.relative_to(conf_dir()).with_suffix("") for path in conf_dir().rglob("*.yaml"))


NEEDS = {  # what a choice cannot do without
    "custom": ["model._target_=torch.nn.Identity", "dataset._target_=own.load", "partition._target_=own.Mine"],
    "own": ["engine=deployment", "dataset=image_folder", "dataset.classes=[a,b]"],
    "none": ["engine=deployment", "partition=own", "dataset.classes=[a,b]"],
}


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.parent != Path()], ids=str)
def test_every_file_of_conf_composes(choice: Path) -> None:
    group = "experiment" if choice.parts[0] == "experiment" else str(choice.parent)
    config = load([f"{group}={choice.relative_to(group)}", *NEEDS.get(choice.name, [])])
    assert loads(dump(config)) == config


check = importlib.import_module("fedmuon_app.config.check")


def test_the_tables_in_code_and_conf_list_the_same_names() -> None:
    assert names("algorithm") == tuple(sorted(METHODS))
    assert names("engine") == tuple(sorted(ENGINES))
    assert (tuple(SCALES), tuple(SHAPES), AUGMENTATIONS) == (check.SCALES, check.SCHEDULES, check.AUGMENTATIONS)
    assert tuple(RULES) == check.AGGREGATES == attacks.RULES
    assert ("none", *TRACKERS) == check.TRACKERS
    for group in ("algorithm", "dataset", "partition", "engine"):
        chosen = {getattr(load([f"{group}={name}", *NEEDS.get(name, [])]), group).name for name in names(group)}
        assert chosen == set(names(group))


TUNED = {  # appendix of the paper: (step size, step size of momentum SGD), the second seed's where they differ
    ("fashion_mnist", 0.1): {
        "fedavg": (0.1, None),
        "fedavg_adam": (0.01, None),
        "scaffold": (0.1, None),
        "scaffold_adam": (0.001, None),
        "localmuon": (0.001, 0.1),
        "fedmuon": (0.001, 0.01),
    },
    ("fashion_mnist", 10.0): {
        "fedavg": (0.1, None),
        "fedavg_adam": (0.1, None),
        "scaffold": (0.1, None),
        "scaffold_adam": (0.001, None),
        "localmuon": (0.001, 0.01),
        "fedmuon": (0.001, 0.01),
    },
}
CIFAR10 = {
    "fedavg": (0.1, None),
    "fedavg_adam": (0.001, None),
    "scaffold": (0.1, None),
    "scaffold_adam": (0.001, None),
    "localmuon": (0.001, 0.01),
    "fedmuon": (0.001, 0.01),
}
TUNED |= {("cifar10", beta): CIFAR10 for beta in (0.1, 10.0)}
EXPERIMENTS = [
    (f"{folder}{dataset}_{'heterogeneous' if beta < 1 else 'homogeneous'}", dataset, beta)
    for dataset, beta in TUNED
    for folder in (["", "paper/"] if dataset == "fashion_mnist" else ["paper/"])
]


@pytest.mark.parametrize(("experiment", "dataset", "beta"), EXPERIMENTS)
def test_the_experiments_hold_the_papers_step_sizes(experiment: str, dataset: str, beta: float) -> None:
    for name, sizes in TUNED[dataset, beta].items():
        c = load([f"experiment={experiment}", f"algorithm={name}"])
        assert (c.algorithm.lr, c.algorithm.vector_lr) == sizes
        assert (c.dataset.name, c.partition.beta) == (dataset, beta)
    assert load([f"experiment={experiment}", "algorithm.lr=0.5"]).algorithm.lr == 0.5


def test_the_papers_preset() -> None:
    fashion, cifar = (load([f"experiment=paper/{name}_heterogeneous"]) for name in ("fashion_mnist", "cifar10"))
    assert (fashion.rounds, cifar.rounds) == (2120, 3520)
    for c in (fashion, cifar):
        assert (c.federation.num_clients, c.federation.clients_per_round, c.local.steps) == (16, 8, 5)
        assert (c.local.batch_size, c.algorithm.alpha, c.algorithm.lmo.steps) == (32, 0.1, 5)
    assert (fashion.model["group_norm"], fashion.model["padding"]) == (True, 0)
    assert cifar.dataset.augment == "crop_flip"


REFUSED = {
    "federation.clients_per_round=17": "federation.clients_per_round = 17: must lie between 1 and .* = 16",
    "federation.clients_per_round=0": "federation.clients_per_round = 0",
    "partition.beta=0": "partition.beta = 0.0: must be a positive number",
    "dataset.validation=1": r"dataset.validation = 1.0: must lie in \[0, 1\)",
    "evaluation.diagnostics=0": "evaluation.diagnostics = 0: must be at least 1, or null",
    "stop.patience=0": "stop.patience = 0: must be at least 1, or null",
    "stop.accuracy=1.5": r"stop.accuracy = 1.5: must lie in \(0, 1\], or be null",
    "stop.delta=0.1": "stop.delta = 0.1: must be 0 where stop.patience is null",
    "stop.metric=test_loss": "stop.metric = test_loss: must be null where stop.value and stop.patience are",
    "tracker=aim": "tracker = aim: must be one of none, tensorboard, mlflow, wandb",
    "partition.beta=-1": "partition.beta = -1.0",
    "algorithm.lmo.steps=-1": "algorithm.lmo.steps = -1: must be at least 0",
    "algorithm.lr=0": "algorithm.lr = 0.0",
    "algorithm.lr=nan": "algorithm.lr = nan",
    "algorithm.lr=inf": "algorithm.lr = inf",
    "algorithm.schedule=poly": "algorithm.schedule = poly: must be one of constant, linear, cosine, step",
    "algorithm.warmup=150": "algorithm.warmup = 150: must lie between 0 and rounds - 1 = 149",
    "algorithm.final=1.5": r"algorithm.final = 1.5: must lie in \[0, 1\]",
    "algorithm.weight_decay=-1": "algorithm.weight_decay = -1.0: must not be negative",
    "algorithm.clip=0": "algorithm.clip = 0.0: must be a positive number or null",
    "algorithm.prox=inf": "algorithm.prox = inf",
    "algorithm.lr=fast": "algorithm.lr: Value 'fast' .* could not be converted to Float",
    "algorithm.alpha=0": r"algorithm.alpha = 0.0: must lie in \(0, 1\]",
    "algorithm=fedprox": "algorithm = fedprox is unknown: choose one of " + ", ".join(sorted(METHODS)),
    "algorithm.name=fedprox": "algorithm = fedprox: must be one of " + ", ".join(sorted(METHODS)),
    "algorithm.momentum=nesterov": "must be one of ema, heavy_ball",
    "algorithm.lmo.norm=nuclear": "must be one of spectral, euclidean, max",
    "algorithm.lmo.coefficients=[1,2]": "must be three numbers",
    "algorithm.outer_momentum=1": r"must lie in \[0, 1\)",
    "federation.num_clents=3": r"num_clents is no key \(do you mean federation.num_clients\?\): federation has num",
    "algorithm.lmo.stepz=3": r"stepz is no key \(do you mean algorithm.lmo.steps\?\): algorithm.lmo has norm",
    "sead=3": r"sead is no key \(do you mean seed\?\): the top level has rounds, seed",
    "model.width=3": r"to add it, write \+model.width",
    "rounds=2.5": "rounds: Value '2.5'",
    "rounds=0": "rounds = 0: must be at least 1",
    "seed=-1": "seed = -1: must not be negative",
    "seed=0,1": "add -m to run every value",
    "device=tpu": "device = tpu: must be auto, cpu or cuda",
    "model=custom": "_target_",
    "rounds": "rounds",
    "algorithm=[1,2]": r"algorithm=\[1,2\]: Hydra cannot compose that",
}


@pytest.mark.parametrize("word", REFUSED)
def test_bad_input_is_one_sentence(word: str) -> None:
    with pytest.raises(InputError, match=REFUSED[word]) as caught:
        load([word])
    assert "\n" not in str(caught.value)


def test_a_gradient_start_needs_a_control() -> None:
    with pytest.raises(InputError, match="localmuon has no control variate"):
        build_method(load(["algorithm=localmuon", "algorithm.start=gradient"]))
    build_method(load(["algorithm=localmuon", "algorithm.start=gradient", "algorithm.control=momentum"]))


def test_each_norm_has_a_step_scale_of_its_own_unless_one_is_given() -> None:
    for norm, scale in (("spectral", "moonlight"), ("euclidean", "one"), ("max", "one")):
        assert load([f"algorithm.lmo.norm={norm}"]).algorithm.lmo.scale == scale
    assert load(["algorithm.lmo.norm=max", "algorithm.lmo.scale=jordan"]).algorithm.lmo.scale == "jordan"


def test_words_are_split_as_a_shell_does() -> None:
    assert split("algorithm=scaffold run_dir='/a b' seed=1") == ["algorithm=scaffold", "run_dir=/a b", "seed=1"]
    with pytest.raises(InputError, match="overrides"):
        split("run_dir='/a")


def commands_of_the_readme() -> list[str]:
    text = (conf_dir().parent / "README.md").read_text().replace("\\\n", "")
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if re.match(r"fedmuon( |$)", line) and "--help" not in line]


@pytest.mark.parametrize("command", commands_of_the_readme())
def test_every_command_of_the_readme_composes(command: str) -> None:
    words = [word for word in split(command)[1:] if word != "-m" and not word.startswith("hydra")]
    values = [word.partition("=") for word in words if "(" not in word]  # interval(…) is a sweeper's
    for last in (0, -1):  # of each list, the first and the last value
        load([f"{key}={value if value.startswith('[') else value.split(',')[last]}" for key, _, value in values])
