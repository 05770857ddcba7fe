import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.methods import METHODS
from fedmuon_app.config import load
from fedmuon_app.engines import in_process
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation import checkpoint
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.diagnostics import MEASURES

SMALL = ["rounds=3", "local.steps=2", "local.batch_size=16", "federation.num_clients=6"]
SMALL += ["federation.clients_per_round=3"]
ALL = 10**6
EXACT = [f"evaluation.diagnostics={ALL}", "partition=iid", "algorithm.lmo.norm=euclidean", "algorithm.lmo.exact=true"]


def gradient_of_f(experiment: Experiment, X: Tensor) -> Tensor:
    """Plain autograd over all examples of each client at once."""
    model = experiment.clients.objective.model.eval()
    with torch.no_grad():
        for w, x in experiment.model(X).items():
            model.get_parameter(w).copy_(x)
    total = torch.zeros_like(X)
    for part in experiment.clients.parts:
        own = experiment.clients.examples.at(part)
        loss = F.cross_entropy(model(experiment.clients.objective.inputs(own.inputs)), own.targets)
        g = torch.autograd.grad(loss, list(model.parameters()))
        names = [w for w, _ in model.named_parameters()]
        total += experiment.clients.objective.layout.flat(dict(zip(names, g, strict=True))) / len(
            experiment.clients.parts
        )
    return total


def layers(experiment: Experiment, x: Tensor) -> list[Tensor]:
    views = experiment.clients.objective.layout.views(x)
    return [views[w].reshape(len(views[w]), -1).double() for w in experiment.clients.objective.layout.matrices]


@pytest.mark.parametrize("algorithm", ["fedmuon", "localmuon", "scaffold"])
def test_the_measures_are_what_they_say(algorithm: str, tmp_path: Path) -> None:
    c = load([*SMALL, *EXACT, f"algorithm={algorithm}"])
    in_process.run(c, tmp_path)
    (line,) = [json.loads(text) for text in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    experiment = build(c)
    standing, _ = checkpoint.read(tmp_path)
    g = gradient_of_f(experiment, standing.server.X)
    traces = [float(torch.linalg.matrix_norm(G, "nuc")) for G in layers(experiment, g)]
    assert line["gradient_norm"] == pytest.approx(float(g.norm()), rel=1e-4)
    assert line["gradient_trace_norm"] == pytest.approx(sum(traces), rel=1e-4)
    assert line["gradient_p_norm"] == pytest.approx(sum(traces), rel=1e-4)  # the exact oracle's p is 1
    states = checkpoint.states_beside(tmp_path, 6, experiment.clients.initial_state(), torch.device("cpu"))
    momenta = [
        layers(experiment, states.load(i, standing.counted[i]).M if i in standing.counted else torch.zeros_like(g))
        for i in range(6)
    ]
    assert len(standing.counted) > 3
    bias = [
        torch.stack([-M / M.norm() if M.any() else M for M in layer]).mean(0) + mean / mean.norm()
        for layer in zip(*momenta, strict=True)
        for mean in [torch.stack(layer).mean(0)]
    ]
    assert line["lmo_bias"] == pytest.approx(float(torch.cat([b.flatten() for b in bias]).norm()), rel=1e-4)
    if METHODS[algorithm].control == "none":
        assert line["control_error"] is None
    else:
        assert line["control_error"] == pytest.approx(float((standing.server.C - g).norm()), rel=1e-4)


def test_the_drift_is_from_what_the_round_began_with_and_all_that_is_known_without_the_data() -> None:
    experiment = build(load(SMALL))
    X, nothing = experiment.server.X, experiment.server.C
    good = {i: Update(X + size / len(X) ** 0.5, nothing, 1.0) for i, size in ((0, 1.0), (2, 3.0))}
    (diagnostics,) = experiment.diagnostics(load([*SMALL, f"evaluation.diagnostics={ALL}"]), None)
    found = diagnostics.measure(experiment.server, RunState(experiment.server), good)
    assert found.pop("client_drift") == pytest.approx(2.0, rel=1e-4)
    assert found == dict.fromkeys(list(MEASURES)[1:])
    assert experiment.diagnostics(load(SMALL), None) == []


def test_it_changes_nothing_of_a_run(tmp_path: Path) -> None:
    for name, words in (("with", ["evaluation.diagnostics=8"]), ("without", [])):
        in_process.run(load([*SMALL, "evaluation.every=1", *words]), tmp_path / name)
    with_, without = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without"))
    assert with_ == without
    lines = [json.loads(text) for text in (tmp_path / "with" / "metrics.jsonl").read_text().splitlines()]
    assert all(lines[r]["client_drift"] > 0 and lines[r]["lmo_bias"] > 0 for r in range(3))
