"""A model and data of one's own: FedMuon against LocalMuon on two spirals, a quarter turn at each client."""

import math

import torch
from torch import Tensor, nn

import fedmuon_app as fm


def spirals(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points float[count, 2] of two spirals, and which one each is on."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (count,), generator=draw)
    turn = 2 * math.pi * torch.rand(count, generator=draw)
    x = torch.stack([(turn + math.pi * y).cos(), (turn + math.pi * y).sin()], 1) * (0.5 + turn)[:, None]
    return x + 0.1 * torch.randn(count, 2, generator=draw), y


model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
x, y = spirals(2000, seed=0)
quarter = ((x[:, 1].atan2(x[:, 0]) + math.pi) / (math.pi / 2)).int().clamp(max=3)  # what a client sees of the plane
clients = [(x[quarter == i], y[quarter == i]) for i in range(4)]

for algorithm in ("fedmuon", "localmuon"):
    run = fm.train(model, clients, test=spirals(500, seed=1), algorithm=algorithm, rounds=60, lr=0.01)
    print(algorithm, f"{run.log.test_accuracy.iloc[-1]:.3f}", "after", len(run.log), "evaluations")
