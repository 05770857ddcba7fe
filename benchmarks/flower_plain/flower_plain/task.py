"""The models, the data and the local steps."""

import functools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.plain import PlainLeNet, newton_schulz
from fedmuon_app.data.sources import fashion_mnist
from fedmuon_app.models.resnet import resnet18_gn

Named = dict[str, Tensor]


def model_of(name: str) -> nn.Module:
    """A new model."""
    torch.manual_seed(0)
    return PlainLeNet() if name == "lenet" else resnet18_gn()


@functools.cache
def data_of(client: int, clients: int) -> tuple[Tensor, Tensor]:
    """A client's share of Fashion-MNIST."""
    train = fashion_mnist(None).train
    chosen = torch.arange(client, len(train), clients)
    return (train.inputs[chosen] / 255 - 0.286) / 0.353, train.targets[chosen]


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
