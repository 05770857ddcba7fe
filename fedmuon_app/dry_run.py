"""``dry_run=true``: what a run will be, before it is. One local round of one client is trained, and nothing is kept."""

import functools
import itertools
import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuon_app.algorithms.steps import Muon, StepRule
from fedmuon_app.config import OWN, Config
from fedmuon_app.data.examples import first
from fedmuon_app.disk import write_whole
from fedmuon_app.engines.in_process import number_of_workers, trainers
from fedmuon_app.errors import InputError
from fedmuon_app.experiment import Experiment, build, pick_device
from fedmuon_app.federation.judging import judges
from fedmuon_app.federation.loop import nonempty_clients
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.federation.states import MappedStates, unnamed_states
from fedmuon_app.report.labels import heat_map

REPORT, HEAT_MAP = "dry_run.json", "labels.png"
ENOUGH = 1.0  # seconds that one thing is timed for
RAY_CALL, RAY_BYTE = 6e-3, 0.3e-9  # seconds of a round for a call on Ray, and for a byte of its answer
BARS = " ▁▂▃▄▅▆▇█"
MOST_CLIENTS, MOST_CLASSES = 32, 60  # that are printed
SANE = {"muon": (1e-4, 0.05), "adam": (1e-5, 0.05), "sgd": (1e-3, 3.0)}  # step sizes that results/ has seen train

Said = dict[str, Any]


def show(c: Config, folder: Path) -> None:
    """Print what the run of ``c`` will be, and leave it in ``folder`` as dry_run.json and labels.png.

    Raises:
        InputError: the run would be refused.
    """
    if c.partition.name == OWN:
        raise InputError("dry_run = true: with partition = own the data is at the nodes, unknown here")
    experiment = build(c, threads=1 if forked(c) else None)  # as engines/in_process.py has it
    ids = nonempty_clients(experiment.sizes(), experiment.plan.clients_per_round)
    labels = experiment.labels()
    said = {
        "clients": clients(experiment, ids, labels),
        "parameters": parameters(c, experiment),
        "bytes": wire(c, experiment),
        "time": seconds(c, experiment, ids),
        "memory": memory(c, experiment),
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
    stacked = {w: layout.stacked.get(w, 1) for w in layout.matrices}  # an attention's three are one parameter
    shapes = {w: [k, layout.matrices[w][0] // k, layout.matrices[w][1:].numel()] for w, k in stacked.items()}
    T = rule.T if isinstance(rule, Muon) and rule.norm == "spectral" else None
    orthogonal = sum(k * newton_schulz_flops(d1, d2, T or 0) for k, d1, d2 in shapes.values())
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
    start = 2 * size * c.federation.num_clients if experiment.plan.gradient_start else 0
    extra = judging(c) * evaluations(c) * experiment.server.X.numel() * experiment.server.X.element_size()
    return {"a_call": size, "a_round": one, "in_all": one * c.rounds + start + extra}


def judging(c: Config) -> int:
    """Clients that judge X at each evaluation."""
    return len(judges(c.seed, 0, range(c.federation.num_clients), c.evaluation.clients))


def evaluations(c: Config) -> int:
    """How many there are in the run."""
    return -(-c.rounds // c.evaluation.every)


def memory(c: Config, experiment: Experiment) -> Said:
    """Bytes of the data here, of what one client keeps and all keep once each has been called, and of this process.

    The last is the most that it has had by now, with the data, the model and one client at work.
    """
    inputs, state = first(experiment.clients.examples.inputs), experiment.clients.initial_state()
    one = MappedStates.size(1, state) // 2
    data = inputs.numel() * inputs.element_size() if isinstance(inputs, Tensor) else 0
    return {
        "inputs": data,
        "a_client_keeps": one,
        "all_clients_keep": MappedStates.size(c.federation.num_clients, state),
        "this_process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1),
    }


def largest(experiment: Experiment) -> int:
    """The client with the most examples."""
    return max(experiment.sizes().items(), key=lambda item: item[1])[0]


def seconds(c: Config, experiment: Experiment, ids: Sequence[int]) -> Said:
    """Seconds of a local round and of an evaluation; and with this engine, alone on its cores, of a round and in all.

    The last two are None where other machines train. On Ray they count from when its actors are there.
    """
    clients, X, C, S = experiment.clients, experiment.server.X, experiment.server.C, experiment.plan.clients_per_round
    states = unnamed_states(len(clients.parts), clients.initial_state(), clients.objective.device)
    sized = sorted(ids, key=lambda i: len(clients.parts[i]))
    typical, cohort = sized[len(sized) // 2], dict.fromkeys(sized[:: len(sized) // S][:S], Acknowledged())
    calls = (CallId(1, r) for r in itertools.count(1))
    on_ray, beside, workers = c.engine.name == "simulation", at_once(c), forked(c)
    with trainers(c, experiment, states, workers, S) as (train, evaluate):
        local = usual(lambda: clients.answer(next(calls), typical, Acknowledged(), X, C, states))
        a_round = None if trains_elsewhere(c) else usual(lambda: train(next(calls), cohort, X, C))
        test = experiment.evaluate if on_ray else evaluate  # on Ray in the server's process
        evaluation = usual(lambda: test(X))
    judged = 0.0
    if judging(c) and len(clients.held[typical]):
        judged = judging(c) * usual(lambda: clients.judge(typical, X))
    if on_ray:
        judged = judged / beside + judging(c) * RAY_CALL
    asked = experiment.diagnostics(c, states)
    evaluation += judged + sum(len(ids) * usual(functools.partial(one.gradient, typical, X)) for one in asked)
    in_all = None
    if a_round is not None:
        a_round /= 1 if workers else beside
        a_round += S * (RAY_CALL + RAY_BYTE * wire(c, experiment)["a_call"]) if on_ray else 0
        in_all = c.rounds * a_round + evaluations(c) * evaluation
    return {"local_round": local, "evaluation": evaluation, "a_round": a_round, "in_all": in_all}


def trains_elsewhere(c: Config) -> bool:
    """Whether clients train on machines that are not this one."""
    has_cluster = bool(c.engine.ray or os.environ.get("RAY_ADDRESS"))
    return c.engine.name == "deployment" or (c.engine.name == "simulation" and has_cluster)


def at_once(c: Config) -> int:
    """Clients that train at the same time on this machine."""
    if c.engine.name != "simulation":
        return len(c.engine.devices or []) or max(1, number_of_workers(c, pick_device(c.device).type))
    return max(1, min(c.federation.clients_per_round, cpu_count() // c.engine.cpus_per_client))


def forked(c: Config) -> int:
    """Worker processes that stand for those of the engine; 0 where this one does."""
    can = sys.platform == "linux" and pick_device(c.device).type == "cpu" and not c.engine.devices
    return at_once(c) if can and at_once(c) > 1 else 0


def usual(task: Callable[[], object]) -> float:
    """Seconds that a task takes: the median of as many times as there is time for, after one that warms up."""
    taken: list[float] = []
    while sum(taken) < ENOUGH:
        start = time.perf_counter()
        task()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:] or taken)


def choices(c: Config) -> Said:
    """What was left open (null or auto), and what it becomes."""
    lr = c.algorithm.vector_lr
    here = c.engine.name == "in_process"
    return {
        "algorithm.vector_lr": c.algorithm.lr if lr is None else lr,
        "algorithm.control": c.algorithm.control or "the method's own",
        "device": str(pick_device(c.device)),
        **({"engine.workers": number_of_workers(c, pick_device(c.device).type)} if here else {}),
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
    p, t, n, sent, kept = said["parameters"], said["time"], said["clients"], said["bytes"], said["memory"]
    rules: Mapping[str, str] = p["rules"]
    sizes = f"{n['smallest']} to {n['largest']} examples, median {n['median']}"
    rows = [("clients", f"{n['n']}, {n['a_round']} a round; {sizes}")]
    rows += [("classes of each client", bars(n))] if len(n["classes"]) > 1 else []
    shapes = {w: f"{w} {f'{k} of ' if k > 1 else ''}{d1}×{d2}" for w, (k, d1, d2) in p["matrices"].items()}
    by_rule = {rule: [shapes.get(w, w) for w in rules if rules[w] == rule] for rule in dict.fromkeys(rules.values())}
    rows += [(f"parameters by {rule}", ", ".join(names)) for rule, names in by_rule.items()]
    rows += [("numbers in X", f"{p['d']:,}"), ("a gradient", f"{p['flop_gradient'] / 1e6:,.0f} MFLOP")]
    if p["T"] is not None:
        rows.append(("Newton-Schulz", f"{p['flop_newton_schulz'] / 1e6:,.0f} MFLOP at most, T = {p['T']}"))
    rows += [
        ("over the wire", f"{sent['a_round'] / 1e6:,.1f} MB a round, {sent['in_all'] / 1e6:,.0f} MB in all"),
        ("memory", f"{kept['this_process'] / 1e6:,.0f} MB with one client at work"),
        ("of it data", f"{kept['inputs'] / 1e6:,.1f} MB"),
        (
            "clients keep",
            f"{kept['a_client_keeps'] / 1e6:,.1f} MB each, {kept['all_clients_keep'] / 1e6:,.0f} MB in all",
        ),
        ("a local round", f"{t['local_round']:.3f} s"),
        ("an evaluation", f"{t['evaluation']:.2f} s"),
    ]
    whole = "not known: other machines train"
    if t["in_all"] is not None:
        whole = f"{timedelta(seconds=round(t['in_all']))}, {t['a_round']:.2f} s a round"
    rows.append(("the run", whole))
    rows += [(f"left open: {key}", "none" if value is None else str(value)) for key, value in said["choices"].items()]
    rows += [("look at", warning) for warning in said["warnings"]]
    table = Table(show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def bars(n: Said) -> str:
    """A line a client: its id, its examples, and a bar for each class beside the most that any client has of any."""
    rows: Mapping[str, Sequence[int]] = n["labels"]
    most = max(map(max, rows.values()))
    lines = []
    for i, row in itertools.islice(rows.items(), MOST_CLIENTS):
        drawn = "".join(BARS[math.ceil(count / most * (len(BARS) - 1))] for count in row[:MOST_CLASSES])
        lines.append(f"{i:>4} {sum(row):>7} {drawn}{'…' if len(row) > MOST_CLASSES else ''}")
    return "\n".join([*lines, *(["…"] if len(rows) > MOST_CLIENTS else [])])
