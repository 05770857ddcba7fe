"""From a configuration to what the loop and the engines need: configs do not go further down than this."""

import csv
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmuon_app.algorithms.layout import NamedTensors
from fedmuon_app.algorithms.server import Server, initial_server
from fedmuon_app.config import OWN, Config, build_target, dump, loads, refuse_another
from fedmuon_app.data import store
from fedmuon_app.data.examples import Data, Indices, blank
from fedmuon_app.data_of import deal, load_data, load_own_data
from fedmuon_app.errors import InputError
from fedmuon_app.federation.callbacks import Callback, tracker
from fedmuon_app.federation.checkpoint import config_of
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.diagnostics import MEASURES, Diagnostics
from fedmuon_app.federation.folder import CHECKPOINT, LABELS, finished
from fedmuon_app.federation.judging import hold_out, spread_keys
from fedmuon_app.federation.loop import Plan
from fedmuon_app.federation.runlog import CheckpointOptions
from fedmuon_app.federation.states import ClientStates
from fedmuon_app.federation.stopping import Stopping
from fedmuon_app.method_of import build_hyper, build_method, build_muon, build_rule, try_rules
from fedmuon_app.objective import Objective
from fedmuon_app.tasks import Task
from fedmuon_app.tasks.inputs import inputs_of
from fedmuon_app.trial import try_model

Given = tuple[Data, Sequence[Indices], Callable[[], nn.Module]]
MOST_LABELLED = 1000  # clients whose labels are written down


@dataclass(frozen=True)
class Experiment:
    """A run, built: its clients, its server, its plan."""

    clients: Clients
    server: Server
    plan: Plan
    data: Data

    @property
    def metric(self) -> str:
        """What decides which X is best, by its name in metrics.jsonl."""
        return f"test_{self.clients.objective.task.metrics[0]}"

    def evaluate(self, X: Tensor) -> Mapping[str, float]:
        """What the task measures on the test set; NaN where there is none."""
        if not len(self.data.test):
            return dict.fromkeys(self.clients.objective.task.metrics, math.nan)
        return self.clients.objective.evaluate(X, self.data.test)

    def model(self, X: Tensor) -> NamedTensors:
        """X in the model, as it is saved."""
        return self.clients.objective.state_dict(X)

    def about_model(self, c: Config) -> dict[str, Any]:
        """What the model needs to be used: how it is built, what goes in, and what comes out."""
        data = self.data
        return {
            "model": model_of(c, data),
            "task": c.task["_target_"],
            "input": {"shape": list(data.train.shape), "mean": list(data.mean), "std": list(data.std)},
            "classes": list(data.classes),
        }

    def more(self, c: Config, X: Tensor) -> dict[str, Any]:
        """What else result.json holds: the confusion matrix, rows by true class, where it is asked for."""
        if not c.evaluation.confusion:
            return {}
        counts = self.clients.objective.confusion(X, self.data.test, len(self.data.classes))
        return {"confusion": {"classes": list(self.data.classes), "counts": counts.tolist()}}

    def diagnostics(self, c: Config, states: ClientStates | None) -> list[Diagnostics]:
        """What ``evaluation.diagnostics`` asks for; ``states`` as :class:`Diagnostics` has them."""
        ids, examples = [i for i, m in self.sizes().items() if m], c.evaluation.diagnostics
        return [] if examples is None else [Diagnostics(self.clients, ids, examples, states, build_muon(c))]

    @property
    def is_classification(self) -> bool:
        """Whether every target is one of the classes."""
        return self.data.train.targets.ndim == 1

    @property
    def label_names(self) -> list[str]:
        """What the columns of :meth:`labels` are."""
        return list(self.data.classes) if self.is_classification else ["examples"]

    def labels(self) -> NDArray[np.int64]:
        """Examples by client and class, int64[clients, classes]; of other data by client alone, int64[clients, 1]."""
        if not self.is_classification:
            return np.array([[len(part)] for part in self.clients.parts])
        labels = self.clients.examples.targets.cpu().numpy()
        return np.stack([np.bincount(labels[part], minlength=len(self.label_names)) for part in self.clients.parts])

    def note_labels(self, folder: Path) -> None:
        """Leave them in a run's folder, where they are known and not too many to be looked at."""
        if self.is_classification and len(self.clients.examples) and len(self.clients.parts) <= MOST_LABELLED:
            with (folder / LABELS).open("w", newline="") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(["client", *self.label_names])
                writer.writerows([i, *row] for i, row in enumerate(self.labels().tolist()))

    def sizes(self) -> dict[int, int]:
        """Number of examples by client id."""
        return {i: len(part) for i, part in enumerate(self.clients.parts)}


def build(c: Config, own: Path | None = None, threads: int | None = None, given: Given | None = None) -> Experiment:
    """Load the data, deal it out, build the model and the rest.

    Args:
        c: the configuration. With ``partition=own`` nothing is dealt: the server's data is all test.
        own: folder of class folders of a client that brings its own images (``data-path`` of its node):
            they are its whole data, and there is no test set.
        threads: of torch in this process, in place of ``engine.threads``.
        given: data, the parts of the clients, and what makes the model, in place of what ``c`` names.

    Raises:
        InputError: the data is not there, or does not fit the model, or the device is not there.
    """
    torch.set_num_threads(threads or c.engine.threads)
    store.keep_in(Path(c.engine.shared) / "cache" if c.engine.shared else None)
    device = pick_device(c.device)
    data = given[0] if given else load_data(c) if own is None else load_own_data(c, own)
    objective = _objective(c, data, given[2] if given else None, device)
    refuse_metric(c, objective.task.metrics)
    method = build_method(c)
    try_rules(c, method, objective.layout)
    parts, held = hold_out(given[1] if given else _parts(c, data), c.dataset.client_validation, c.seed)
    train, sizes = data.train.to(device), (c.local.steps, c.local.batch_size)
    clients = Clients(method, build_hyper(c), objective, train, parts, *sizes, held)
    server = initial_server(method, objective.X0(), c.algorithm.outer_momentum)
    return Experiment(clients, server, _plan(c, objective.task), data)


def _objective(c: Config, data: Data, make: Callable[[], nn.Module] | None, device: torch.device) -> Objective:
    """f_i of the model that ``make`` gives, or ``model`` names; tried once.

    Raises:
        InputError: the model does not fit the data.
    """
    objective = Objective(
        make or functools.partial(build_target, "model", model_of(c, data)),
        c.seed,
        device,
        build_target("task", c.task),
        lambda dtype: inputs_of(data, c.dataset.augment, dtype, device),
        c.algorithm.lmo.exclude,
        c.compute == "bfloat16",
        c.algorithm.lmo.split,
    )
    if c.evaluation.confusion and data.train.targets.ndim > 1:
        raise InputError("evaluation.confusion = true: only a classification has classes to take for one another")
    try_model(objective, data.test if len(data.test) else blank(data.test), len(data.classes))
    return objective


def _parts(c: Config, data: Data) -> Sequence[Indices]:
    """The examples of each client."""
    if c.partition.name == OWN:
        return [np.arange(len(data.train))] * c.federation.num_clients  # none at the server
    return deal(c, data.train, data.columns)


def _plan(c: Config, task: Task) -> Plan:
    """The numbers of the loop."""
    a, f = c.algorithm, c.federation
    return Plan(
        c.seed,
        f.clients_per_round,
        c.rounds,
        c.evaluation.every,
        a.outer_lr,
        a.outer_momentum,
        a.start == "gradient",
        f.norm_bound,
        build_rule(c),
        Stopping(**{**asdict(c.stop), "metric": c.stop.metric or f"test_{task.metrics[0]}"}),
        c.evaluation.clients,
    )


def refuse_metric(c: Config, there: Sequence[str]) -> None:
    """Refuse to stop by what is not measured in this run.

    Raises:
        InputError: ``stop`` names it.
    """
    names = [*(f"test_{name}" for name in there), "train_loss"]
    names += spread_keys(names[0]) if c.evaluation.clients != "none" else []
    names += MEASURES if c.evaluation.diagnostics is not None else []
    for key, name in (("stop.metric", c.stop.metric), ("stop.accuracy", "test_accuracy" if c.stop.accuracy else None)):
        if name is not None and name not in names:
            raise InputError(f"{key} = {getattr(c.stop, key[5:])}: must be among {', '.join(names)}")


def model_of(c: Config, data: Data) -> dict[str, Any]:
    """``model`` with what is null in it, and follows from the data."""
    shape = data.train.shape
    follows: dict[str, Any] = {"num_classes": len(data.classes), "in_features": shape.numel()}
    if len(shape) == 3:
        channels, height, width = shape
        follows |= {"in_channels": channels, "size": height if height == width else [height, width]}
    return {key: follows.get(key) if value is None else value for key, value in c.model.items()}


def pick_device(name: str) -> torch.device:
    """The torch device of ``device``.

    Raises:
        InputError: it names a GPU that torch does not see.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device = {name}: torch sees {torch.cuda.device_count()} GPUs here; use cpu or auto")
    return device


def keeping(c: Config) -> CheckpointOptions:
    """Its checkpoints, and whether to go on from one."""
    return CheckpointOptions(dump(c), c.checkpoint.every, c.resume is not None)


def trackers(c: Config, folder: Path) -> list[Callback]:
    """What ``tracker`` names, for the run in ``folder``.

    Raises:
        InputError: it is not installed, cannot be built, or is no callback.
    """
    said = c.tracker
    if not isinstance(said, dict):
        return tracker(said, folder)
    found = build_target("tracker", {**said, "folder": folder})
    if not isinstance(found, Callback):
        raise InputError(f"tracker._target_ = {said['_target_']}: it must be a fedmuon_app.Callback")
    return [found]


def refuse_another_run(c: Config, folder: Path) -> None:
    """What is to be resumed in ``folder`` must be the run that ``c`` describes.

    Raises:
        InputError: it is another one, or its checkpoint is damaged.
    """
    result = finished(folder)
    if result is not None:
        refuse_another(str(folder), result["config"], c)
    elif (folder / CHECKPOINT).exists():
        refuse_another(str(folder), asdict(loads(config_of(folder))), c)


def header(c: Config, experiment: Experiment) -> Mapping[str, Any]:
    """What result.json begins with: the configuration, and how many examples all clients have together.

    These are not known (null) where clients bring their own.
    """
    return {
        "algorithm": c.algorithm.name,
        "dataset": c.dataset.name,
        "partition": c.partition.name,
        "beta": c.partition.beta if c.partition.name.startswith("dirichlet") else None,
        "seed": c.seed,
        "metric": experiment.metric,
        "engine": c.engine.name,
        "train_examples": None if c.partition.name == OWN else len(experiment.clients.examples),
        "config": asdict(c),
    }
