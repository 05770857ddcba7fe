"""FedAvg and FedMuon as anybody would write them first: what the engines are compared with.

A torch module, an optimiser's loop over its parameters, Newton-Schulz as Algorithm 2 has it, all in this process.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmuon_app.algorithms.newton_schulz import QUINTIC


class PlainLeNet(nn.Module):
    """fedmuon_app.models.lenet's network, with ReLU before the pools as textbooks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        """float[B, 1, 28, 28] to scores float[B, 10]."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc2(F.relu(self.fc1(x.flatten(1)))))
        scores: Tensor = self.fc3(x)
        return scores


def newton_schulz(G: Tensor, T: int = 5) -> Tensor:
    """Algorithm 2 on the smaller side."""
    a, b, c = QUINTIC
    X = G / (G.norm() + 1e-7)
    if G.shape[0] > G.shape[1]:
        X = X.T
    for _ in range(T):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.shape[0] > G.shape[1] else X


Data = Sequence[tuple[Tensor, Tensor]]
"""Each client's images float[m, 1, 28, 28], scaled, and labels."""


def rounds_of(data: Data, S: int, K: int, B: int, muon: bool) -> Callable[[], None]:
    """A function that plays one round of FedMuon, or of FedAvg with torch's SGD."""
    model, n = PlainLeNet(), len(data)
    X = [p.detach().clone() for p in model.parameters()]
    C = [torch.zeros_like(x) for x in X]
    M = [[torch.zeros_like(x) for x in X] for _ in range(n)]
    draw = np.random.default_rng(0)

    def minibatch(i: int) -> tuple[Tensor, Tensor]:
        images, labels = data[i]
        chosen = torch.from_numpy(draw.choice(len(labels), B, replace=False))
        return images[chosen], labels[chosen]

    def local_sgd(i: int) -> None:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(K):
            images, labels = minibatch(i)
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()

    def local_muon(i: int) -> None:
        for _ in range(K):
            images, labels = minibatch(i)
            model.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            with torch.no_grad():
                for p, m, c_i, c in zip(model.parameters(), M[i], C_i, C, strict=True):
                    assert p.grad is not None
                    m.lerp_(p.grad, 0.1)
                    G = m - c_i + c
                    if p.ndim == 1:
                        p -= 0.01 * G
                    else:
                        G = G.reshape(len(G), -1)
                        p -= 0.001 * 0.2 * max(G.shape) ** 0.5 * newton_schulz(G).reshape(p.shape)

    def one_round() -> None:
        nonlocal C_i
        dX, dC = [torch.zeros_like(x) for x in X], [torch.zeros_like(x) for x in X]
        for i in sorted(draw.choice(n, S, replace=False).tolist()):
            with torch.no_grad():
                for p, x in zip(model.parameters(), X, strict=True):
                    p.copy_(x)
            C_i = [m.clone() for m in M[i]]
            (local_muon if muon else local_sgd)(i)
            with torch.no_grad():
                for k, p in enumerate(model.parameters()):
                    dX[k] += p - X[k]
                    dC[k] += M[i][k] - C_i[k]
        for k in range(len(X)):
            X[k] += dX[k] / n
            C[k] += dC[k] / n

    C_i: list[Tensor] = []
    return one_round
