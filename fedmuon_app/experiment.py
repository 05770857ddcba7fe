"""From a configuration to what the loop and the engines need: configs do not go further down than this."""

import csv
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmuon_app import runtime
from fedmuon_app.algorithms.layout import NamedTensors
from fedmuon_app.algorithms.methods import METHODS, Control, Hyper, Method
from fedmuon_app.algorithms.schedules import Schedule
from fedmuon_app.algorithms.server import Server, initial_server
from fedmuon_app.algorithms.steps import Adam, Muon, Sgd, StepRule
from fedmuon_app.config import Config, build_target, dump, loads, refuse_another
from fedmuon_app.data import pictures
from fedmuon_app.data.examples import Data, Indices, blank
from fedmuon_app.data.own import as_data
from fedmuon_app.data.partition import PartitionSpec, partition
from fedmuon_app.data.store import CACHE
from fedmuon_app.errors import InputError
from fedmuon_app.federation.checkpoint import config_of
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.diagnostics import Diagnostics
from fedmuon_app.federation.folder import CHECKPOINT, LABELS, finished
from fedmuon_app.federation.judging import hold_out
from fedmuon_app.federation.loop import Plan
from fedmuon_app.federation.runlog import CheckpointOptions
from fedmuon_app.federation.states import ClientStates
from fedmuon_app.federation.stopping import Stopping
from fedmuon_app.objective import Objective
from fedmuon_app.seeds import rng
from fedmuon_app.tasks.inputs import inputs_of

Given = tuple[Data, Sequence[Indices], Callable[[], nn.Module]]
MOST_LABELLED = 1000  # clients whose labels are written down
OWN = "own"  # the partition of clients that bring their data
PARTITIONS = CACHE / "partitions"


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
        given: data, the parts of the clients, and what makes the model, in place of those that ``c`` names.

    Raises:
        InputError: the data is not there, or does not fit the model, or the device is not there.
    """
    runtime.prepare(threads or c.engine.threads)
    device = pick_device(c.device)
    data = given[0] if given else load_data(c) if own is None else load_own_data(c, own)
    objective = Objective(
        given[2] if given else functools.partial(build_target, "model", model_of(c, data)),
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
    objective.check(data.test if len(data.test) else blank(data.test), len(data.classes))
    method = build_method(c)
    for key, rule, shapes in (
        ("step", method.matrix_step, objective.layout.matrix_shapes),
        ("vector_step", method.vector_step, list(objective.layout.vectors.values())),
    ):
        target = getattr(c.algorithm, key).get("_target_")
        if target is not None:
            try_rule(f"algorithm.{key}._target_ = {target}", rule, shapes)
    n = c.federation.num_clients
    if given:
        parts = list(given[1])
    elif c.partition.name == OWN:
        parts = [np.arange(len(data.train))] * n  # none at the server
    else:
        parts = partition(dealt_by(c, data), n, PartitionSpec(**asdict(c.partition)), c.seed, PARTITIONS)
    parts, held = hold_out(parts, c.dataset.client_validation, c.seed)
    sizes = c.local.steps, c.local.batch_size
    clients = Clients(method, build_hyper(c), objective, data.train.to(device), parts, *sizes, held)
    a = c.algorithm
    stopping = Stopping(**{**asdict(c.stop), "metric": c.stop.metric or f"test_{objective.task.metrics[0]}"})
    refuse_metric(c, objective.task.metrics)
    plan = Plan(
        c.seed,
        c.federation.clients_per_round,
        c.rounds,
        c.evaluation.every,
        a.outer_lr,
        a.outer_momentum,
        a.start == "gradient",
        c.federation.norm_bound,
        c.federation.aggregate,
        c.federation.byzantine,
        stopping,
        c.evaluation.clients,
    )
    return Experiment(clients, initial_server(method, objective.X0(), a.outer_momentum), plan, data)


def refuse_metric(c: Config, there: Sequence[str]) -> None:
    """Refuse to stop by what the task does not measure.

    Raises:
        InputError: ``stop`` names it.
    """
    names = [*(f"test_{name}" for name in there), "train_loss"]
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


def dealt_by(c: Config, data: Data) -> Indices:
    """What the training examples are dealt by, int64[N]: their labels, or a column's words by number.

    Raises:
        InputError: they have no such labels or column.
    """
    if c.partition.name == "column":
        there, column = data.columns, str(c.partition.column)
        if column not in there:
            known = f"the data has {', '.join(there)}" if there else "the data has no columns"
            raise InputError(f"partition.column = {column}: {known}")
        words, numbers = np.unique(np.array(there[column]), return_inverse=True)
        if len(words) != c.federation.num_clients:
            raise InputError(
                f"partition.column = {column}: it has {len(words)} values, and each is a client: "
                f"federation.num_clients={len(words)}"
            )
        return numbers.astype(np.int64)
    targets = data.train.targets
    if targets.ndim > 1 and c.partition.name != "iid":
        raise InputError(
            f"partition = {c.partition.name}: these examples have no single label to be dealt by; take iid, or column"
        )
    return np.zeros(len(targets), np.int64) if targets.ndim > 1 else targets.numpy()


def build_method(c: Config) -> Method:
    """The row of the table, with what ``algorithm`` says in place of its own: step rules, their numbers, the control.

    Raises:
        InputError: a step rule cannot be built, or there is no control variate to start.
    """
    a = c.algorithm
    row = METHODS.get(a.name, Method(Sgd(), Sgd()))
    matrix, vector = (
        _with_numbers(c, own) if node.get("_target_") is None else build_target(f"algorithm.{key}", node)
        for key, node, own in (("step", a.step, row.matrix_step), ("vector_step", a.vector_step, row.vector_step))
    )
    method = Method(matrix, vector, cast(Control, a.control or row.control))
    if a.start == "gradient" and method.control == "none":
        raise InputError(f"algorithm.start = gradient: {a.name} has no control variate to start; leave it at zeros")
    return method


def _with_numbers(c: Config, rule: StepRule) -> StepRule:
    """A rule of the table with its numbers of this run."""
    a = c.algorithm
    if isinstance(rule, Muon):
        return build_muon(c)
    return Adam(a.alpha, a.momentum == "heavy_ball", a.beta2, a.eps) if isinstance(rule, Adam) else rule


def build_muon(c: Config) -> Muon:
    """Muon's step, as ``algorithm.lmo`` says."""
    lmo = c.algorithm.lmo
    p, q, s = lmo.coefficients
    norm = build_target("algorithm.lmo.norm", lmo.norm) if isinstance(lmo.norm, dict) else lmo.norm
    return Muon(norm, None if lmo.exact else lmo.steps, (p, q, s), lmo.dtype == "bfloat16", lmo.scale)


def try_rule(name: str, rule: StepRule, shapes: Sequence[torch.Size]) -> None:
    """Let a rule of somebody's own take a step, before anything trains.

    Raises:
        InputError: it is none, or fails, or gives other than a direction and its slots.
    """
    d = sum(shape.numel() for shape in shapes)
    try:
        slots = {key: torch.zeros(size) for key, size in rule.slots(shapes).items()}
        G, g, X = torch.ones(3, d)
        D, kept = rule(G, g, X, slots, 1, shapes)
        found = [D.shape, *(kept[key].shape for key in slots)]
    except Exception as error:  # whatever somebody's rule does
        raise InputError(f"{name}: it cannot take a step ({type(error).__name__}: {error})") from error
    if found != [G.shape, *(x.shape for x in slots.values())] or set(kept) != set(slots):
        raise InputError(f"{name}: it must give a direction of {d} numbers, and each of its slots in the size it had")


def build_hyper(c: Config) -> Hyper:
    """The numbers of the method that belong to no step rule."""
    a = c.algorithm
    return Hyper(
        lr=a.lr,
        vector_lr=a.lr if a.vector_lr is None else a.vector_lr,
        alpha=a.alpha,
        heavy_ball=a.momentum == "heavy_ball",
        keep_momentum=a.keep_momentum,
        schedule=build_target("algorithm.schedule", a.schedule)
        if isinstance(a.schedule, dict)
        else Schedule(a.schedule, c.rounds, a.warmup, a.final),
        weight_decay=a.weight_decay,
        clip=a.clip,
        prox=a.prox,
    )


def load_data(c: Config) -> Data:
    """The data set that ``dataset`` names; with ``dataset.validation``, a part of its training set as the test.

    Raises:
        InputError: the data is not there, or nothing is left to train or to validate on.
    """
    data = load_source(c)
    if not c.dataset.validation:
        return data
    kept, held = data.train.split(c.dataset.validation, rng(c.seed, "validation"))
    if not len(kept) or not len(held):
        raise InputError(f"dataset.validation = {c.dataset.validation}: of {len(data.train)} examples none is left")
    columns = {name: [words[i] for i in kept] for name, words in data.columns.items()}
    return replace(data, train=data.train.subset(kept), test=data.train.subset(held), columns=columns)


def load_source(c: Config) -> Data:
    """The data set as it comes.

    Raises:
        InputError: it cannot be had, or is none.
    """
    if c.partition.name == OWN:
        return load_test(c)
    name = f"dataset._target_ = {c.dataset._target_}"
    if c.dataset.path is not None and not (path := Path(c.dataset.path).expanduser()).exists():
        raise InputError(f"dataset.path = {path} is not there: name what holds the data, or leave the key out")
    try:
        said = build_target("dataset", {"_target_": c.dataset._target_, **c.dataset.args})
        return as_data(said, name)
    except OSError as error:
        raise InputError(f"{name} cannot be read ({error})") from error


def load_test(c: Config) -> Data:
    """What the server of clients with own data has: pictures to test on, or nothing.

    Raises:
        InputError: nothing could judge X, or the pictures cannot be read.
    """
    path = c.dataset.path
    if c.dataset.name == "none" and path is not None:
        raise InputError(f"dataset.path = {path}: must be null with dataset = none; dataset=image_folder reads it")
    if path is None and c.evaluation.clients == "none":
        raise InputError(
            "dataset.path = null: name labelled pictures to test on (dataset=image_folder), or let the clients "
            "judge X (dataset=none dataset.client_validation=0.1 evaluation.clients=all)"
        )
    return pictures.test_folder(path, c.dataset.size, c.dataset.channels, c.dataset.classes)


def load_own_data(c: Config, folder: Path) -> Data:
    """The images of one client. Its class folders need not be all of ``dataset.classes``.

    Raises:
        InputError: the folder holds none of them, or a broken picture.
    """
    size, channels, classes = c.dataset.size, c.dataset.channels, c.dataset.classes or []
    examples = pictures.read_folder(folder, size, channels, classes, missing_ok=True)
    return Data(examples, examples.subset(np.arange(min(2, len(examples)))), classes, *pictures.folder_scale(channels))


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
