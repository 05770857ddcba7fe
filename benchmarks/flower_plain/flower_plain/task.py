"""The models, the data and the local steps."""

import functools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedmuon_app.data.sources import fashion_mnist
from fedmuon_app.models.resnet import resnet18_gn

Named = dict[str, Tensor]


class LeNet(nn.Module):
    """LeNet-5."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images to scores."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def model_of(name: str) -> nn.Module:
    """A new model."""
    torch.manual_seed(0)
    return LeNet() if name == "lenet" else resnet18_gn()


@functools.cache
def data_of(client: int, clients: int) -> tuple[Tensor, Tensor]:
    """A client's share of Fashion-MNIST."""
    train = fashion_mnist(None).train
    chosen = torch.arange(client, len(train), clients)
    return (train.images[chosen] / 255 - 0.286) / 0.353, train.labels[chosen]


def newton_schulz(G: Tensor) -> Tensor:
    """Algorithm 2 with T = 5."""
    X = G / (G.norm() + 1e-7)
    if G.shape[0] > G.shape[1]:
        X = X.T
    for _ in range(5):
        A = X @ X.T
        X = 1.875 * X + (-1.25 * A + 0.375 * A @ A) @ X
    return X.T if G.shape[0] > G.shape[1] else X


def local_steps(model: nn.Module, M: Named, C_i: Named, C: Named, data: tuple[Tensor, Tensor], K: int, B: int) -> None:
    """K local steps of FedMuon; changes the model and M."""
    images, labels = data
    for _ in range(K):
        chosen = torch.from_numpy(np.random.default_rng().choice(len(labels), B, replace=False))
        model.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        with torch.no_grad():
            for w, p in model.named_parameters():
                M[w] = M[w].lerp(p.grad, 0.1)
                G = M[w] - C_i[w] + C[w]
                if p.ndim == 1:
                    p -= 0.01 * G
                else:
                    G = G.reshape(len(G), -1)
                    p -= 0.001 * 0.2 * max(G.shape) ** 0.5 * newton_schulz(G).reshape(p.shape)
