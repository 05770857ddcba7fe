"""Finished runs, and which of them are the same experiment with other seeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from math import ceil, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import choice, flat, load
from fedmuon_app.federation.stopping import sign

# what may differ between two runs of one experiment
INCIDENTAL = (
    "seed", "run_dir", "resume", "tracker", "device", "engine.", "evaluation.", "checkpoint.", "dataset.path",
    "dataset.args.path",
    "model.num_classes", "model.in_channels", "model.in_features", "model.size",  # as the data has, null or not
    "algorithm.label", "algorithm.colour",
    "federation.connect_timeout", "federation.round_timeout",
)  # fmt: skip
PROBLEM = ("dataset.", "model.", "partition.")  # what makes a panel; all else tells its experiments apart
LAST = 5  # evaluations, whose mean is the final accuracy
NAMES = {
    "digits": "Digits", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "image_folder": "Images",
    "dirichlet": "Dirichlet", "dirichlet_by_class": "Dirichlet by class", "iid": "IID", "shard": "shards",
    "pathological": "pathological",
    "fedavg": "FedAvg", "fedavg_adam": "FedAvg (Adam)", "scaffold": "SCAFFOLD", "scaffold_adam": "SCAFFOLD (Adam)",
    "localmuon": "LocalMuon", "fedmuon": "FedMuon", "muloco": "MuLoCo",
    "text": "Text", "csv": "Table", "column": "by",
}  # fmt: skip


@cache
def defaults() -> dict[str, Any]:
    """The values that keys have in conf/ whatever the method, by dotted key; a model's arguments are its own."""
    known = flat(asdict(load([])))
    own = {"algorithm.name", "algorithm.lr", "algorithm.vector_lr", "algorithm.outer_lr", "algorithm.outer_momentum"}
    groups = "model.", "dataset.", "partition._target_", "partition.args."
    return {key: value for key, value in known.items() if key not in own and not key.startswith(groups)}


@cache
def implied(partition: str) -> dict[str, Any]:
    """The target and the arguments that conf/ has for a split of this name, by dotted key."""
    node = choice("partition", partition)
    return flat({"partition": {key: node[key] for key in ("_target_", "args") if key in node}})


@dataclass(frozen=True)
class Run:
    """One run: result.json, or failed.json where a sweep's run has failed, and the lines of metrics.jsonl."""

    folder: Path
    result: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]

    @cached_property
    def config(self) -> dict[str, Any]:
        """With dotted keys; keys that came after the run was made have their defaults."""
        whole = {**defaults(), **flat(self.result["config"])}
        for key, value in implied(str(whole["partition.name"])).items():
            if whole.get(key) == value or str(value).startswith("${"):  # says no more than the name and the numbers do
                whole.pop(key, None)
        return whole

    @property
    def validated(self) -> bool:
        """Whether its accuracies are of held-out training images, not of the test set."""
        return bool(self.config.get("dataset.validation"))

    @property
    def failed(self) -> str | None:
        """Why it did not complete; None: it did."""
        return self.result.get("failed")

    @property
    def metric(self) -> str:
        """What decides which X is best: test_accuracy, or test_loss where a task has none."""
        return str(self.result.get("metric", "test_accuracy"))

    @property
    def final(self) -> float:
        """Mean of that over the last evaluations; NaN where nobody could say."""
        return fmean(self.last(self.metric) or [nan])

    def last(self, key: str) -> list[float]:
        """A number of the last evaluations, where they have it."""
        return [float(line[key]) for line in self.lines[-LAST:] if line.get(key) is not None]

    def reached(self, accuracy: float) -> Mapping[str, Any] | None:
        """The line of the first evaluation that is as good as ``accuracy``."""
        return next((line for line in self.lines if (line.get("test_accuracy") or 0) >= accuracy), None)

    def epochs(self, rounds: float) -> float | None:
        """Passes over a client's share, of the mean size, if it were in every round; None in runs of old versions."""
        N, n = self.result.get("train_examples"), int(self.config["federation.num_clients"])
        steps = rounds * int(self.config["local.steps"])
        return steps / ceil(int(N) / n / int(self.config["local.batch_size"])) if N else None


@dataclass(frozen=True)
class Series:
    """Runs that differ in their seeds only.

    Attributes:
        panel: what they were trained on, e.g. "Fashion-MNIST, Dirichlet β = 0.1".
        method: the algorithm.
        own: what sets them apart from the other experiments of their method and panel, e.g. {"algorithm.lr": 0.01}.
        runs: the completed runs, by seed.
        failed: the failed runs, by seed.
    """

    panel: str
    method: str
    own: Mapping[str, Any]
    runs: Sequence[Run]
    failed: Sequence[Run] = ()

    @property
    def settings(self) -> str:
        """What is its own, in words: "lr=0.01"."""
        return in_words(self.own)

    @property
    def all_runs(self) -> list[Run]:
        """At least one."""
        return [*self.runs, *self.failed]

    @property
    def config(self) -> Mapping[str, Any]:
        """Of its first run."""
        return self.all_runs[0].config

    @property
    def final(self) -> float:
        """The mean over its seeds."""
        return fmean(run.final for run in self.runs)

    @property
    def metric(self) -> str:
        """See :class:`Run`."""
        return self.all_runs[0].metric

    @property
    def score(self) -> float:
        """``final``, larger when it is better."""
        return sign(self.metric) * self.final

    @property
    def name(self) -> str:
        """The method as the paper writes it, or as its own configuration does."""
        return str(self.config.get("algorithm.label") or NAMES.get(self.method, self.method))

    @property
    def label(self) -> str:
        """Method and settings."""
        return f"{self.name}, {self.settings}" if self.settings else self.name


def experiments(runs: Iterable[Run]) -> list[Series]:
    """Group runs that differ in nothing but what is incidental; sorted by panel, method and settings.

    Of runs that do not even differ in their seed, the same numbers twice, the first that completed counts.
    """
    groups: dict[str, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: bool(run.failed)):
        key = {k: v for k, v in run.config.items() if not k.startswith(INCIDENTAL)}
        groups.setdefault(json.dumps(key, sort_keys=True), {}).setdefault(int(run.config["seed"]), run)
    panels = _panels([next(iter(members.values())).config for members in groups.values()])
    named: dict[tuple[str, str], list[Sequence[Run]]] = {}
    for members, panel in zip(groups.values(), panels, strict=True):
        by_seed = [run for _, run in sorted(members.items())]
        named.setdefault((panel, str(by_seed[0].config["algorithm.name"])), []).append(by_seed)
    result: list[Series] = []
    for (panel, method), alike in named.items():
        differing = _differing([seeds[0].config for seeds in alike])
        for seeds in alike:
            own = {key: seeds[0].config.get(key) for key in differing}
            completed = [run for run in seeds if not run.failed]
            result.append(Series(panel, method, own, completed, [run for run in seeds if run.failed]))
    order = {name: i for i, name in enumerate(METHODS)}
    return sorted(result, key=lambda e: (e.panel, order.get(e.method, len(order)), e.method, e.settings))


def _panels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The name of each configuration's problem; what sets problems of the same name apart is added to it."""
    names = [_problem(config) for config in configs]
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for name, config in zip(names, configs, strict=True):
        alike.setdefault(name, []).append({k: v for k, v in config.items() if k.startswith(PROBLEM)})
    differing = {name: _differing(same) for name, same in alike.items()}
    more = [
        in_words({key: config.get(key) for key in differing[name]}) for name, config in zip(names, configs, strict=True)
    ]
    return [f"{name} ({settings})" if settings else name for name, settings in zip(names, more, strict=True)]


def _problem(config: Mapping[str, Any]) -> str:
    beta = f" β = {config['partition.beta']:g}" if config["partition.name"].startswith("dirichlet") else ""
    share = config.get("dataset.validation")
    held_out = f", validated on {share:.0%}" if share else ""
    dataset, dealt = str(config["dataset.name"]), str(config["partition.name"])
    column = f" {config.get('partition.column')}" if dealt == "column" else ""
    return f"{NAMES.get(dataset, dataset)}{held_out}, {NAMES.get(dealt, dealt)}{column}{beta}"


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not the same everywhere, but for what is incidental."""
    keys = sorted({key for config in configs for key in config if not key.startswith(INCIDENTAL)})
    return [key for key in keys if len({json.dumps(config[key]) for config in configs if key in config}) > 1]


def in_words(settings: Mapping[str, Any]) -> str:
    """Settings as on the command line, without the groups that go without saying."""
    return ", ".join(f"{short(key)}={value}" for key, value in settings.items())


def short(key: str) -> str:
    """A key without the name of its group."""
    return key.removeprefix("algorithm.").removeprefix("model.")
