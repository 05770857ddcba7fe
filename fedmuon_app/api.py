"""The way in from Python, for a notebook or a program: the command line's run, on a model and data at hand."""

import copy
import functools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from fedmuon_app.algorithms.server import Server
from fedmuon_app.config import Config, load
from fedmuon_app.data.examples import Data, Examples, Indices, joined
from fedmuon_app.data.own import as_examples, names_of, scale_of
from fedmuon_app.data_of import deal as dealt
from fedmuon_app.engines import in_process
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import build
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.folder import METRICS
from fedmuon_app.federation.jsonl import until

OWN = ["dataset=custom", "dataset._target_=fedmuon_app.train", "model=custom", "model._target_=fedmuon_app.train"]


@dataclass(frozen=True)
class Trained:
    """What :func:`train` gives.

    Attributes:
        model: a copy of the model with X, in evaluation mode.
        log: a row an evaluation, the lines of metrics.jsonl.
        server: X, C and the outer momentum after the last round.
        folder: the run's, where it was named.
    """

    model: nn.Module
    log: pd.DataFrame
    server: Server
    folder: Path | None


def deal(train: Any, n: int, beta: float | None = 0.1, seed: int = 0) -> list[Examples]:
    """Deal a data set with class labels to ``n`` clients, as the paper does: each draws its mix of classes.

    Args:
        train: (inputs, labels) arrays, or any sequence of (input, label).
        n: clients.
        beta: β of the Dirichlet draw, small is heterogeneous; None: all alike.
        seed: decides it.

    Raises:
        InputError: it cannot be read, or not be dealt.
    """
    whole = as_examples(train, "train")
    words = ["partition=iid"] if beta is None else ["partition=dirichlet", f"partition.beta={beta}"]
    c = load([*OWN, *words, f"federation.num_clients={n}", "federation.clients_per_round=1", f"seed={seed}"])
    return [whole.subset(part) for part in dealt(c, whole, {})]


def train(
    model: nn.Module | Callable[[], nn.Module],
    clients: Iterable[Any],
    test: Any = None,
    *,
    algorithm: str = "fedmuon",
    rounds: int = 100,
    lr: float | None = None,
    clients_per_round: int | None = None,
    steps: int = 5,
    batch_size: int = 64,
    task: str = "classification",
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    folder: str | Path | None = None,
    overrides: Sequence[str] = (),
) -> Trained:
    """Train a model over clients, in this process.

    Args:
        model: is not changed; or what makes one, with torch's generator seeded.
        clients: a data set each: (inputs, targets) arrays, a sequence of (input, target), or of :func:`deal`.
        test: a data set in the same form; None: nothing is tested.
        algorithm: a name of conf/algorithm.
        rounds: R.
        lr: η; None: the method's.
        clients_per_round: S; None: all.
        steps: K.
        batch_size: B.
        task: a name of conf/task.
        seed: decides every random draw, but not the weights of a model that is made already.
        callbacks: told of every round.
        folder: where the run's files stay, for a report or a resume; None: nowhere.
        overrides: further words of the command line: ``["algorithm.schedule=cosine", "partition.beta=10"]``.

    Raises:
        InputError: the data, the model or a word cannot be used.
    """
    parts = [as_examples(one, f"clients[{i}]") for i, one in enumerate(clients)]
    if not parts:
        raise InputError("clients = []: there is no client")
    try:
        whole = joined(parts)
    except (RuntimeError, TypeError, KeyError) as error:
        raise InputError(f"clients: their examples are not alike ({str(error).splitlines()[0]})") from error
    tested = whole.subset(np.arange(0)) if test is None else as_examples(test, "test")
    ends = np.cumsum([0, *map(len, parts)])
    data = Data(whole, tested, names_of(test, whole, tested), *scale_of(whole))
    chosen = [np.arange(start, end) for start, end in pairwise(ends.tolist())]
    c = load([
        *OWN, f"algorithm={algorithm}", f"task={task}", f"rounds={rounds}", f"seed={seed}",
        f"federation.num_clients={len(parts)}", f"federation.clients_per_round={clients_per_round or len(parts)}",
        f"local.steps={steps}", f"local.batch_size={batch_size}", *([] if lr is None else [f"algorithm.lr={lr}"]),
        *([] if folder is not None else ["checkpoint.every=null"]), "engine.workers=0", *overrides,
    ])  # fmt: skip
    if c.engine.devices:
        raise InputError(f"engine.devices = {c.engine.devices}: not from Python, whose model is this process's")
    if folder is not None:
        return _run(c, model, data, chosen, callbacks, Path(folder))
    with tempfile.TemporaryDirectory(prefix="fedmuon-") as place:
        return _run(c, model, data, chosen, callbacks, Path(place), stays=False)


def _run(
    c: Config,
    model: nn.Module | Callable[[], nn.Module],
    data: Data,
    parts: Sequence[Indices],
    callbacks: Sequence[Callback],
    folder: Path,
    stays: bool = True,
) -> Trained:
    made: Callable[[], nn.Module] = functools.partial(copy.deepcopy, model) if isinstance(model, nn.Module) else model
    experiment = build(c, given=(data, parts, made))
    server = in_process.train(c, experiment, folder, in_process.number_of_workers(c, "cpu"), callbacks)
    trained = made()
    trained.load_state_dict(dict(experiment.model(server.X)))
    lines, _ = until(folder / METRICS, c.rounds)
    return Trained(trained.eval(), pd.DataFrame(lines), server, folder if stays else None)
