"""FedMuon of one client, or of clients that are all alike, is central Muon."""

import pytest
import torch
from torch import Tensor

from fedmuon_app.algorithms.methods import METHODS, Hyper
from fedmuon_app.algorithms.newton_schulz import QUINTIC
from tests.games import Gradient, ToyFederation, quadratics

HP = Hyper(lr=0.02, vector_lr=0.1, alpha=0.1)
SHAPE = (4, 6)


def central(gradient: Gradient, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """X after each step of torch.optim.Muon, which is kept from rounding to bfloat16."""
    monkeypatch.setattr(Tensor, "bfloat16", lambda self: self.clone())
    weight = torch.nn.Parameter(torch.ones(SHAPE, dtype=torch.float64))
    optimiser = torch.optim.Muon(
        [weight], lr=HP.lr, weight_decay=0.0, momentum=0.9, nesterov=False, ns_coefficients=QUINTIC, ns_steps=5,
        eps=1e-300, adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    seen = []
    for step in range(steps):
        weight.grad = gradient(weight.detach(), step)
        optimiser.step()
        seen.append(weight.detach().reshape(-1).clone())
    return seen


@pytest.mark.parametrize("method", ["fedmuon", "localmuon"])
def test_one_client_is_torchs_muon_step_by_step(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, _ = quadratics(1, *SHAPE, noise=0.1)
    game = ToyFederation(METHODS[method], HP, gradients, torch.ones(SHAPE, dtype=torch.float64), K=1)
    for X in central(gradients[0], 30, monkeypatch):
        game.play(1)
        torch.testing.assert_close(game.server.X, X, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("K", [1, 4])
def test_clients_with_the_same_data_and_full_batches_are_central_muon(K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, _ = quadratics(1, *SHAPE, noise=0.0)
    start = torch.ones(SHAPE, dtype=torch.float64)
    game = ToyFederation(METHODS["fedmuon"], HP, gradients * 5, start, K=K)
    for X in central(gradients[0], 6 * K, monkeypatch)[K - 1 :: K]:
        game.play(1)
        torch.testing.assert_close(game.server.X, X, atol=1e-10, rtol=1e-10)
