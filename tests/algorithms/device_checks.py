"""The path of a GPU without one: fake tensors of device cuda, which refuse a mix of devices and any look at a value.

Run by test_device.py.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from fedmuon_app.algorithms.client import Update, initial_state, local_steps
from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.algorithms.lmo import polar
from fedmuon_app.algorithms.methods import METHODS, Hyper, Method
from fedmuon_app.algorithms.newton_schulz import newton_schulz
from fedmuon_app.algorithms.server import initial_server, server_step
from fedmuon_app.algorithms.steps import Adam, Muon, Sgd, StepRule

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
