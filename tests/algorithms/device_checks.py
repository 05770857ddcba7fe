"""The path of a GPU without one: fake tensors of device cuda, which refuse a mix of devices and any look at a value.

Run by test_device.py.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from fedmuon_app.algorithms.client import ClientState, Update, initial_state, local_round, local_steps
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.lmo import polar
from fedmuon_app.algorithms.methods import METHODS, Hyper, Method
from fedmuon_app.algorithms.newton_schulz import newton_schulz
from fedmuon_app.algorithms.server import initial_server, server_step
from fedmuon_app.algorithms.steps import Adam, Muon, Sgd, Slots, StepRule
from fedmuon_app.data.examples import Data, Examples
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.protocol import NEVER, CallId, faults
from fedmuon_app.federation.resident import ResidentStates
from fedmuon_app.federation.vmap import Padded, padded
from fedmuon_app.models.lenet import LeNet
from fedmuon_app.objective import Objective
from fedmuon_app.tasks.classification import Classification
from fedmuon_app.tasks.inputs import inputs_of

SHAPES = {"conv": (6, 1, 5, 5), "fc": (10, 16), "bias": (10,)}
HP = Hyper(0.01, 0.01, weight_decay=0.1, clip=1.0, prox=0.1)


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    with FakeTensorMode() as mode:
        yield mode


def on_gpu() -> tuple[Layout, Tensor]:
    parameters = {w: torch.empty(shape, device="cuda") for w, shape in SHAPES.items()}
    layout = Layout.of(parameters)
    return layout, layout.flat(parameters)


def quadratic(X: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    return (X - batch).square().sum() / 2, X - batch


@pytest.mark.parametrize("name", METHODS)
def test_local_steps_and_the_servers_step_stay_on_the_gpu(name: str, fake: FakeTensorMode) -> None:
    method, (layout, X) = METHODS[name], on_gpu()
    server, state = initial_server(method, X, 0.5), initial_state(method, layout, X)
    batches = [torch.empty_like(X) for _ in range(3)]
    kept = state.M, state.C, state.kept
    X_i, M, C_next, slots, loss = local_steps(method, HP, layout, quadratic, X, server.C, kept, 0, batches)
    after = server_step(server, [Update(X_i, C_next - state.C, 0.0)] * 2, n=4, outer_lr=0.7, outer_momentum=0.5)
    for x in (X_i, M, C_next, *slots.values(), loss, after.X, after.C, after.U):
        assert x.device.type == "cuda"


@pytest.mark.parametrize(
    "rule",
    [Muon(T=0), Muon(bfloat16=True), Muon(norm="euclidean"), Muon(norm="max"), Muon(T=None), Adam(), Sgd()],
    ids=str,
)
def test_every_rule_steps_without_a_look_at_a_value(rule: StepRule, fake: FakeTensorMode) -> None:
    layout, X = on_gpu()
    shapes = layout.matrix_shapes
    kept = {name: torch.empty(size, device="cuda") for name, size in rule.slots(shapes).items()}
    G = X[: layout.in_matrices]
    D, _ = rule(G, G, G, kept, 1, shapes)
    assert (D.device.type, D.shape) == ("cuda", G.shape)


@pytest.mark.parametrize("shape", [(64, 64), (16, 400), (512, 4608), (8, 5, 7)])
def test_newton_schulz_and_the_polar_factor_of_every_form(shape: tuple[int, ...], fake: FakeTensorMode) -> None:
    G = torch.empty(shape, device="cuda")
    for found in (newton_schulz(G, 5), newton_schulz(G.bfloat16(), 5), polar(G)):
        assert (found.device.type, found.shape) == ("cuda", shape)


def test_a_look_and_a_mix_of_devices_are_caught(fake: FakeTensorMode) -> None:
    x = torch.empty(3, device="cuda")
    with pytest.raises(DataDependentOutputException):
        float(x.sum())
    with pytest.raises(RuntimeError, match="device"):
        x + torch.empty(3)


@pytest.mark.parametrize("method", [METHODS["fedmuon"], METHODS["scaffold_adam"], Method(Muon(T=2), Adam())], ids=str)
def test_local_steps_compile_without_a_break(method: Method) -> None:
    parameters = {w: torch.randn(shape, generator=torch.Generator().manual_seed(0)) for w, shape in SHAPES.items()}
    layout = Layout.of(parameters)
    X, state = layout.flat(parameters), None
    state = initial_state(method, layout, X)
    C = torch.zeros_like(X) if method.control != "none" else X[:0]
    batches = [torch.ones_like(X) * k for k in range(2)]

    def steps(X: Tensor, C: Tensor, M: Tensor, C_i: Tensor, slots: dict[str, Tensor], batches: list[Tensor]) -> Tensor:
        return local_steps(method, HP, layout, quadratic, X, C, (M, C_i, slots), 0, batches)[0]

    arguments = X, C, state.M, state.C, dict(state.kept), batches
    with torch.no_grad():
        compiled = torch.compile(steps, backend="aot_eager", fullgraph=True)(*arguments)
        torch.testing.assert_close(compiled, steps(*arguments))


@pytest.fixture(autouse=True)
def _no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not known on the meta device, and off in these tests."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **named: contextlib.nullcontext())


def lenet() -> tuple[Objective, Examples]:
    """LeNet's objective and 20 pictures on torch's meta device: autograd asks a GPU for its driver."""
    pixels = torch.zeros(20, 1, 28, 28, dtype=torch.uint8, device="meta")
    examples = Examples(pixels, torch.zeros(20, dtype=torch.int64, device="meta"))
    data = Data(examples, examples, [str(i) for i in range(10)], [0.5], [0.5])
    meta = torch.device("meta")
    inputs = functools.partial(inputs_of, data, "crop_flip", device=meta)
    return Objective(LeNet, 0, meta, Classification(), inputs), examples


def test_an_objective_stays_on_the_gpu() -> None:
    objective, examples = lenet()
    X = objective.X0()
    batches = objective.minibatches(3, examples, np.arange(20), 0, 2, 8)
    loss, g = objective.gradient(X, batches[0])
    whole = objective.mean_gradient(X, examples)
    for x in (X, batches[1].inputs, batches[1].targets, loss, g, whole):
        assert x.device.type == "meta"
    with torch.no_grad():
        sums = objective.task.sums(objective.model(objective.inputs(batches[0].inputs)), batches[0].targets)
    assert sums.device.type == "meta"


@pytest.mark.parametrize("name", METHODS)
def test_a_round_waits_for_the_gpu_once_a_client_and_once_at_the_server(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    def read(scalars: Sequence[Tensor]) -> list[float]:
        assert all(x.device.type == "meta" for x in scalars)
        waits.append("read")
        return [0.5] * len(scalars)

    monkeypatch.setattr("fedmuon_app.algorithms.client.numbers", read)
    monkeypatch.setattr("fedmuon_app.algorithms.layout.numbers", read)
    method, (objective, examples) = METHODS[name], lenet()
    X = objective.X0()
    server, state = initial_server(method, X, 0.5), initial_state(method, objective.layout, X)
    batches = objective.minibatches(0, examples, np.arange(20), 0, 3, 8)
    update, after = local_round(method, HP, objective.layout, objective.gradient, X, server.C, state, batches)
    assert waits == ["read"]
    assert after.M.device.type == update.X.device.type == "meta"
    updates = dict.fromkeys(range(8), update)
    assert not faults(updates, X, server.C)
    assert server_step(server, list(updates.values()), 16).X.device.type == "meta"
    assert waits == ["read", "read"]


@pytest.mark.parametrize("name", METHODS)
def test_a_stack_of_clients_is_one_computation_on_the_gpu(name: str) -> None:
    method, (objective, examples) = METHODS[name], lenet()
    X, layout = objective.X0(), objective.layout
    server, one = initial_server(method, X), initial_state(method, layout, X)
    clients = Clients(method, HP, objective, examples, [np.arange(20)] * 2, 2, 8)
    drawn = [clients.minibatches(i, 0, 2) for i in range(2)]
    batches = [padded(clients, [own[k] for own in drawn]) for k in range(2)]
    kept = tuple(torch.stack([x] * 2) for x in (one.M, one.C))
    slots = {slot: torch.stack([x] * 2) for slot, x in one.kept.items()}
    t = torch.zeros(2, dtype=torch.float64, device="meta")

    def steps(kept: tuple[Tensor, Tensor, Slots], t: Tensor, batches: list[Padded]) -> tuple[Tensor, ...]:
        found = local_steps(method, HP, layout, objective.weighted_gradient, X, server.C, kept, t, batches)
        return found[0], found[1], found[2], found[4]

    for x in torch.vmap(steps)((*kept, slots), t, batches):
        assert x.device.type == "meta"


def test_states_stay_where_they_are(fake: FakeTensorMode) -> None:
    M = torch.zeros(8, 5, device="cuda")[2]
    states = ResidentStates(NoStates(), 10**6)
    states.save(3, CallId(1, 1), ClientState(M, M), ())
    kept = states.load(3, CallId(1, 1))
    assert kept.M.device.type == "cuda"
    assert kept.C is kept.M


class NoStates:
    """Nobody asks for them."""

    def newest(self, client: int) -> CallId:
        return NEVER
