"""``dry_run=true``: what a run will be, before it is. One local round of one client is trained, and nothing is kept."""

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuon_app.algorithms.steps import Muon, StepRule
from fedmuon_app.config import OWN, Config
from fedmuon_app.data.examples import first
from fedmuon_app.disk import write_whole
from fedmuon_app.engines.in_process import number_of_workers
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import Experiment, build, pick_device
from fedmuon_app.federation.loop import nonempty_clients
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.federation.states import MappedStates, unnamed_states
from fedmuon_app.report.labels import heat_map

REPORT, HEAT_MAP = "dry_run.json", "labels.png"
ROUNDS = 5  # local rounds that are timed
SANE = {"muon": (1e-4, 0.05), "adam": (1e-5, 0.05), "sgd": (1e-3, 3.0)}  # step sizes that results/ has seen train

Said = dict[str, Any]


def show(c: Config, folder: Path) -> None:
    """Print what the run of ``c`` will be, and leave it in ``folder`` as dry_run.json and labels.png.

    Raises:
        InputError: the run would be refused.
    """
    if c.partition.name == OWN:
        raise InputError("dry_run = true: with partition = own the data is at the nodes, unknown here")
    experiment = build(c)
    ids = nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round)
    labels = experiment.labels()
    said = {
        "clients": clients(experiment, ids, labels),
        "parameters": parameters(c, experiment),
        "bytes": wire(c, experiment),
        "memory": memory(c, experiment),
        "time": seconds(c, experiment, ids),
        "choices": choices(c),
        "warnings": warnings(c, experiment, ids, labels),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / REPORT, (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode(), 0o666)
    heat_map(labels[ids], experiment.label_names, ids).savefig(folder / HEAT_MAP, dpi=150)
    print_tables(said)


def clients(experiment: Experiment, ids: Sequence[int], labels: NDArray[np.int64]) -> Said:
    """How many there are, their sizes, and what each has of each class."""
    sizes = sorted(len(experiment.clients.parts[i]) for i in ids)
    by_client = {str(i): labels[i].tolist() for i in ids}
    middle = int(statistics.median(sizes))
    return {"n": len(ids), "a_round": experiment.plan.clients_per_round, "smallest": sizes[0], "median": middle,
            "largest": sizes[-1], "classes": experiment.label_names, "labels": by_client}  # fmt: skip


def parameters(c: Config, experiment: Experiment) -> Said:
    """Which rule takes which parameter, and what Newton-Schulz costs beside a gradient (floating-point operations)."""
    layout, method = experiment.clients.objective.layout, experiment.clients.method
    rule = method.matrix_step
    rules = dict.fromkeys(layout.matrices, named(rule)) | dict.fromkeys(layout.vectors, named(method.vector_step))
    batch = experiment.clients.minibatches(largest(experiment), 0, 1)[0]
    with FlopCounterMode(display=False) as counter:
        experiment.clients.objective.gradient(experiment.server.X, batch)
    shapes = {w: [shape[0], shape[1:].numel()] for w, shape in layout.matrices.items()}
    T = rule.T if isinstance(rule, Muon) and rule.norm == "spectral" else None
    orthogonal = sum(newton_schulz_flops(d1, d2, T or 0) for d1, d2 in shapes.values())
    return {"d": len(layout), "rules": rules, "matrices": shapes, "T": T,
            "flop_newton_schulz": orthogonal, "flop_gradient": counter.get_total_flops()}  # fmt: skip


def named(rule: StepRule) -> str:
    """A step rule's name."""
    return type(rule).__name__.lower()


def newton_schulz_flops(d1: int, d2: int, T: int) -> int:
    """Of T plain iterations on the smaller side m of a matrix: G Gᵀ and a product with G of 2m²n, a square of 2m³."""
    m, n = min(d1, d2), max(d1, d2)
    return T * (4 * m * m * n + 2 * m**3)


def wire(c: Config, experiment: Experiment) -> Said:
    """Bytes that go over the wire, as metrics.jsonl counts them."""
    size = sum(x.numel() * x.element_size() for x in (experiment.server.X, experiment.server.C))
    one = 2 * size * experiment.plan.clients_per_round
    judged = c.evaluation.clients
    asked = {"none": 0, "all": c.federation.num_clients}.get(judged, int(judged) if judged.isdecimal() else 0)
    evaluations = -(-c.rounds // c.evaluation.every)
    start = 2 * size * c.federation.num_clients if experiment.plan.gradient_start else 0
    extra = asked * evaluations * experiment.server.X.numel() * experiment.server.X.element_size()
    return {"a_call": size, "a_round": one, "in_all": one * c.rounds + start + extra}


def memory(c: Config, experiment: Experiment) -> Said:
    """Bytes of the data here, of what all clients keep once each has been called, and of what one keeps."""
    inputs, state = first(experiment.clients.examples.inputs), experiment.clients.initial_state()
    one = MappedStates.size(1, state) // 2
    data = inputs.numel() * inputs.element_size() if isinstance(inputs, Tensor) else 0
    return {
        "inputs": data,
        "a_client_keeps": one,
        "all_clients_keep": MappedStates.size(c.federation.num_clients, state),
    }


def largest(experiment: Experiment) -> int:
    """The client with the most examples."""
    return max(experiment.sizes().items(), key=lambda item: item[1])[0]


def seconds(c: Config, experiment: Experiment, ids: Sequence[int]) -> Said:
    """Seconds of a local round, of an evaluation, and of the run in this engine, if it is alone on its cores."""
    shape = len(experiment.clients.parts), experiment.clients.initial_state(), experiment.clients.objective.device
    states, X, C = unnamed_states(*shape), experiment.server.X, experiment.server.C
    sized = sorted(ids, key=lambda i: len(experiment.clients.parts[i]))
    typical, taken = sized[len(sized) // 2], []
    for r in range(1, ROUNDS + 2):
        start = time.perf_counter()
        experiment.clients.answer(CallId(1, r), typical, Acknowledged(), X, C, states)
        taken.append(time.perf_counter() - start)
    start = time.perf_counter()
    experiment.evaluate(X)
    test, local = time.perf_counter() - start, statistics.median(taken[1:])
    found: Said = {"local_round": local, "evaluation": test, "a_round": None, "in_all": None}
    if c.engine.name == "in_process" and not c.engine.stacked:
        beside = max(1, number_of_workers(c, pick_device(c.device).type))
        train = local * -(-experiment.plan.clients_per_round // beside)
        found |= {"a_round": train, "in_all": c.rounds * train + -(-c.rounds // c.evaluation.every) * test / beside}
    return found


def choices(c: Config) -> Said:
    """What was left open (null or auto), and what it becomes."""
    lr = c.algorithm.vector_lr
    workers = number_of_workers(c, pick_device(c.device).type) if c.engine.name == "in_process" else None
    return {
        "algorithm.vector_lr": c.algorithm.lr if lr is None else lr,
        "algorithm.control": c.algorithm.control or "the method's own",
        "device": str(pick_device(c.device)),
        "engine.workers": workers,
        "federation.norm_bound": c.federation.norm_bound,
    }


def warnings(c: Config, experiment: Experiment, ids: Sequence[int], labels: NDArray[np.int64]) -> list[str]:
    """What somebody should look at."""
    said = []
    small = [i for i in ids if len(experiment.clients.parts[i]) < c.local.batch_size]
    if small:
        said.append(f"{len(small)} clients have fewer examples than local.batch_size = {c.local.batch_size}: "
                    "their minibatches are as small")  # fmt: skip
    missing = [name for name, count in zip(experiment.label_names, labels.sum(0), strict=True) if not count]
    if missing:
        said.append(f"no client has any example of class {', '.join(missing)}")
    low, high = SANE.get(named(experiment.clients.method.matrix_step), (0.0, math.inf))
    if not low <= c.algorithm.lr <= high:
        said.append(f"algorithm.lr = {c.algorithm.lr:g} lies outside of what has trained here ({low:g} to {high:g})")
    if c.algorithm.schedule == "constant" and c.rounds >= 100:
        said.append("algorithm.schedule = constant: a cosine has ended higher in every setting that was tried")
    return said


def print_tables(said: Said) -> None:
    """The same for a person."""
    p, t, n, sent = said["parameters"], said["time"], said["clients"], said["bytes"]
    rules: Mapping[str, str] = p["rules"]
    sizes = f"{n['smallest']} to {n['largest']} examples, median {n['median']}"
    rows = [("clients", f"{n['n']}, {n['a_round']} a round; {sizes}")]
    by_rule = {rule: [w for w in rules if rules[w] == rule] for rule in dict.fromkeys(rules.values())}
    rows += [(f"parameters by {rule}", ", ".join(names)) for rule, names in by_rule.items()]
    rows += [("numbers in X", f"{p['d']:,}"), ("a gradient", f"{p['flop_gradient'] / 1e6:,.0f} MFLOP")]
    if p["T"] is not None:
        rows.append(("Newton-Schulz", f"{p['flop_newton_schulz'] / 1e6:,.0f} MFLOP at most, T = {p['T']}"))
    rows += [
        ("over the wire", f"{sent['a_round'] / 1e6:,.1f} MB a round, {sent['in_all'] / 1e6:,.0f} MB in all"),
        ("clients keep", f"{said['memory']['a_client_keeps'] / 1e6:,.1f} MB each"),
        ("a local round", f"{t['local_round']:.3f} s"),
        ("an evaluation", f"{t['evaluation']:.2f} s"),
    ]
    whole = "not estimated with this engine"
    if t["in_all"] is not None:
        whole = f"{timedelta(seconds=round(t['in_all']))}, {t['a_round']:.2f} s a round"
    rows.append(("the run", whole))
    rows += [(f"left open: {key}", str(value)) for key, value in said["choices"].items()]
    rows += [("look at", warning) for warning in said["warnings"]]
    table = Table(show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
