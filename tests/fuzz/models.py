"""Forty odd models, as people bring them. Those in SENTENCES are refused with these words; the others train."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


class Net(nn.Module):
    """The plain one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(784, 12), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.two(F.relu(self.one(x.flatten(1))))
        return scores


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.one.requires_grad_(False)


class FrozenHalf(Frozen):
    """A backbone of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.one.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x.flatten(1).bfloat16())).float())


class FrozenBias(Net):
    def __init__(self) -> None:
        super().__init__()
        self.two.bias.requires_grad_(False)


class Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(5, 5)


class Detached(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x.flatten(1))).detach())


class EmptyParameter(Net):
    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, 7))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.nothing.sum()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(784, 10, bias=False), nn.Linear(784, 10, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)) + self.last(x.flatten(1).flip(1))


class TiedFrozen(Tied):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, 10)
        self.first.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(super().forward(x))


class Buffered(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([2.0, float("nan"), -float("inf")]))
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))
        self.register_buffer("fleeting", torch.ones(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale[0]


class Dropout(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, self.training))


class WeightNorm(Net):
    def __init__(self) -> None:
        super().__init__()
        parametrizations.weight_norm(self.one)


class Scalar(Net):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.gain


class Thin(nn.Module):
    """Matrices of one row and one column, and a parameter of five dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(784, 1), nn.Linear(1, 10)
        self.five = nn.Parameter(torch.ones(1, 2, 1, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x.flatten(1))) * self.five.mean()


class Expanded(Net):
    """A weight in memory of an odd order."""

    def __init__(self) -> None:
        super().__init__()
        self.one.weight = nn.Parameter(torch.randn(784, 12).T * 0.05)


class Double(Net):
    def __init__(self) -> None:
        super().__init__()
        self.double()


class Groups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, stride=3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(4 * 81, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(28, 12, batch_first=True), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.squeeze(1))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(28, 4, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(28, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.squeeze(1)).mean(1))


class Sometimes(Net):
    """Uses a part of it in every other call."""

    def __init__(self) -> None:
        super().__init__()
        self.more, self.calls = nn.Linear(784, 10), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(x) + (self.more(x.flatten(1)) if self.calls % 2 else 0)


class Half(Net):
    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()


class Mixed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.two.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x.flatten(1))).double())


class Complex(Net):
    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.ones(3, dtype=torch.complex64))


class AllFrozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LazyLinear(10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


class BatchNorm(nn.Module):
    kept = True

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(1, track_running_stats=self.kept), nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x).flatten(1))


class BatchNormWithoutStatistics(BatchNorm):
    kept = False


class BatchNormOfVectors(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.norm(self.one(x.flatten(1))))


class Counts(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return super().forward(x)


class ReturnsTuple(Net):
    def forward(self, x: Tensor):  # noqa: ANN201
        return super().forward(x), x


class ReturnsDict(Net):
    def forward(self, x: Tensor):  # noqa: ANN201
        return {"logits": super().forward(x)}


class ReturnsNothing(Net):
    def forward(self, x: Tensor):  # noqa: ANN201
        super().forward(x)


class ReturnsNumbers(Net):
    def forward(self, x: Tensor):  # noqa: ANN201
        return super().forward(x).tolist()


class ReturnsClasses(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).argmax(1)


class OneScore(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, :1]


class MoreScores(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).repeat(1, 2)


class ExtraAxis(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).unsqueeze(1)


class WithoutBatch(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean(0)


class TwoInputs(Net):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x) + y


class NoForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)


class NoGrad(Net):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class InferenceMode(Net):
    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Integers(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).round().int()


class NotFinite(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0


class Colour(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 10, 28)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).flatten(1)


class Raises(Net):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("logits")


class RaisesWithoutWords(Net):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError


class TrainsAlone(Net):
    """Cannot be in training mode with one image."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 2:
            raise ValueError("two images at least")
        return super().forward(x)


class ExtraState(Net):
    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: dict[str, int]) -> None: ...


class WantsArguments(Net):
    def __init__(self, width: int) -> None:
        super().__init__()


class Explodes(nn.Module):
    def __init__(self) -> None:
        raise RuntimeError("no weights at https://example.org\nsecond line")


def no_module() -> list[int]:
    return [1, 2]


not_callable = 7

SENTENCES = {
    "Half": "parameters of bfloat16: the trained ones must all be float32",
    "Mixed": "parameters of float32, float64: the trained ones must all be float32",
    "Complex": "parameters of complex64, float32",
    "AllFrozen": "AllFrozen has no parameter to train",
    "Nothing": "Nothing has no parameter to train",
    "Lazy": "Lazy has parameters without a shape (layer.weight): give lazy layers their sizes",
    "BatchNorm": "GroupNorm or LayerNorm in place of BatchNorm",
    "BatchNormWithoutStatistics": "other outputs when the other examples of its batch change",
    "BatchNormOfVectors": "BatchNormOfVectors cannot take inputs of 1×28×28: Expected more than 1 value per channel",
    "Counts": "has buffers that training changes (seen",
    "ReturnsTuple": "ReturnsTuple gives a tuple: its forward must return one tensor",
    "ReturnsDict": "gives a dict",
    "ReturnsNothing": "gives a NoneType",
    "ReturnsNumbers": "gives a list",
    "ReturnsClasses": "gives outputs of shape [] for each example, and Classification needs [10]",
    "OneScore": "gives outputs of shape [1] for each example, and Classification needs [10]",
    "MoreScores": "gives outputs of shape [20] for each",
    "ExtraAxis": "gives outputs of shape [1, 10] for each",
    "WithoutBatch": "gives outputs of shape [] for each",
    "TwoInputs": "missing 1 required positional argument: 'y'",
    "NoForward": 'NoForward cannot take inputs of 1×28×28: Module [NoForward] is missing the required "forward"',
    "NoGrad": "NoGrad cannot be trained on a minibatch",
    "InferenceMode": "InferenceMode cannot be trained on a minibatch",
    "Integers": "Integers cannot be trained on a minibatch",
    "NotFinite": "outputs that are not finite, before any training",
    "Colour": "Colour cannot take inputs of 1×28×28",
    "Raises": "Raises cannot take inputs of 1×28×28: 'logits'",
    "RaisesWithoutWords": "RaisesWithoutWords cannot take inputs of 1×28×28: AssertionError",
    "TrainsAlone": "TrainsAlone cannot be trained on a minibatch of 1 (a client's last one may be as small): two",
    "ExtraState": "keeps a state that is no tensor",
    "WantsArguments": "cannot be built: WantsArguments.__init__() missing 1 required positional argument: 'width'",
    "Explodes": "Explodes cannot be built: no weights at https://example.org second line",
    "no_module": "gives a list, which is no torch.nn.Module",
    "not_callable": "cannot be built",
}
TRAIN = (
    "Net", "Frozen", "FrozenHalf", "FrozenBias", "Unused", "Detached", "EmptyParameter", "Tied", "TiedFrozen",
    "Buffered",
    "Dropout", "WeightNorm", "Scalar", "Thin", "Expanded", "Double", "Groups", "Recurrent", "Attention", "Sometimes",
)  # fmt: skip
