"""f_i and f: the gradient oracle of a client, and the test loss, of a model on images."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.nn import functional as F

from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.data.augment import augment
from fedmuon_app.data.batches import minibatch
from fedmuon_app.data.examples import Examples, Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed, rng

Builder = Callable[[], nn.Module]

TEST_BATCH = 250  # images: their activations in LeNet stay in a processor's cache


@dataclass(frozen=True)
class Scaling:
    """What turns bytes into a model's input: (x/255 - mean)/std per channel."""

    mean: Sequence[float]
    std: Sequence[float]


class Problem:
    """Cross-entropy of a model: F_i(X; ξ) with its gradient, and accuracy on a test set.

    The model gives the structure and constant buffers only; its parameters come with every call, as one
    vector X of float[d].
    """

    def __init__(
        self,
        build: Builder,
        seed: int,
        device: torch.device,
        scaling: Scaling,
        augmentation: str = "none",
        exclude: Sequence[str] = (),
        bfloat16: bool = False,
    ) -> None:
        """Build the model with weights drawn from ``seed``.

        Args:
            build: makes the module; called once, with torch's generator seeded.
            seed: of the run.
            device: where training and evaluation happen.
            scaling: of the pixels.
            augmentation: one of :data:`fedmuon_app.data.augment.AUGMENTATIONS`.
            exclude: patterns of names of matrices that take the vectors' rule.
            bfloat16: multiply in bfloat16 where torch's autocast does, in training.

        Raises:
            InputError: a pattern fits no parameter, or parameters differ in dtype.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed(seed, "model"))
            self.model = build().to(device)
        self.seed, self.device, self.augmentation, self._bfloat16 = seed, device, augmentation, bfloat16
        self._mean, self._std = (
            torch.tensor(x, device=device).view(1, -1, 1, 1) * 255 for x in (scaling.mean, scaling.std)
        )
        named = dict(self.model.named_parameters())
        if len({x.dtype for x in named.values()}) > 1:
            raise InputError(f"model {type(self.model).__name__} has parameters of several dtypes, and must not")
        for pattern in exclude:
            if not any(fnmatch(w, pattern) for w in named):
                raise InputError(f"algorithm.lmo.exclude = {pattern} fits no parameter: there are {', '.join(named)}")
        self._parameters = named
        self.layout = Layout.of(named, [w for w in named if any(fnmatch(w, pattern) for pattern in exclude)])
        self._X0 = self.layout.flat(named).detach()

    def X0(self) -> Tensor:
        """X^(0), the model's drawn weights: a new float[d]."""
        return self._X0.clone()

    def gradient(self, X: Tensor, batch: Examples) -> tuple[Tensor, Tensor]:
        """The mean cross-entropy of a minibatch and its gradient in X."""
        self._put(X)
        with torch.enable_grad():
            loss = self._losses(self.model, self.pixels(batch.images), batch.labels).mean()
            g = torch.autograd.grad(loss, list(self._parameters.values()))
        return loss.detach(), self.layout.flat(dict(zip(self._parameters, g, strict=True)))

    def mean_gradient(self, X: Tensor, examples: Examples, batch_size: int = TEST_BATCH) -> Tensor:
        """The gradient of the mean cross-entropy of all ``examples``, not augmented, in evaluation mode."""
        self.model.eval()
        total = torch.zeros_like(X)
        for part in parts_of(len(examples), batch_size):
            batch = Examples(examples.images[part].to(self.device), examples.labels[part].to(self.device))
            total.add_(self.gradient(X, batch)[1], alpha=len(batch) / len(examples))
        return total

    def weighted_gradient(self, X: Tensor, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """As :meth:`gradient`, in a form that torch.func.vmap can batch over clients.

        Args:
            X: float[d].
            batch: pixels float[B, c, h, w], labels int64[B] and weights float[B] of sum 1: 0 for padding.
        """

        def loss(X: Tensor) -> Tensor:
            pixels, labels, weights = batch
            model = functools.partial(functional_call, self.model, self.layout.views(X))
            return (weights * self._losses(model, pixels, labels)).sum()

        g, value = grad_and_value(loss)(X)
        return value, g

    def minibatches(
        self, client: int, examples: Examples, indices: Indices, first: int, K: int, batch_size: int
    ) -> list[Examples]:
        """ξ_i of the local steps first … first + K - 1, augmented; seeds torch for dropout on the way."""
        self.model.train()
        torch.manual_seed(integer_seed(self.seed, "layers", client, first))
        steps = range(first, first + K)
        chosen = [minibatch(self.seed, client, step, len(indices), batch_size) for step in steps]
        drawn = examples.at(indices[np.concatenate(chosen)]).to(self.device)
        sizes = [len(positions) for positions in chosen]
        parts = zip(steps, torch.split(drawn.images, sizes), torch.split(drawn.labels, sizes), strict=True)
        if self.augmentation == "none":
            return [Examples(images, labels) for _, images, labels in parts]
        return [
            Examples(augment(images, self.augmentation, rng(self.seed, "augmentation", client, step)), labels)
            for step, images, labels in parts
        ]

    def evaluate(self, X: Tensor, test: Examples, batch_size: int = TEST_BATCH) -> tuple[float, float]:
        """Accuracy in [0, 1] and mean cross-entropy of X on all of ``test``."""
        return mean_score([self.score(X, test, part) for part in parts_of(len(test), batch_size)], len(test))

    @torch.no_grad()
    def score(self, X: Tensor, test: Examples, part: slice) -> tuple[float, float]:
        """The number of examples in a part of ``test`` that X gets right, and the sum of their losses."""
        self.model.eval()
        images, labels = (x[part].to(self.device) for x in (test.images, test.labels))
        self._put(X)
        scores = self.model(self.pixels(images))
        right, loss = (scores.argmax(1) == labels).sum(), F.cross_entropy(scores, labels, reduction="sum")
        return float(right), float(loss)

    def check(self, examples: Examples, num_classes: int) -> None:
        """Try the model once.

        Raises:
            InputError: it does not take these images, gives another number of scores, or keeps buffers
                that training changes.
        """
        name = type(self.model).__name__
        before = {b: x.clone() for b, x in self.model.named_buffers()}
        images = examples.images[:2].to(self.device)
        self.model.train()
        try:
            with torch.no_grad():
                scores = self.model(self.pixels(images))
        except (RuntimeError, ValueError) as error:
            shape = "×".join(map(str, images.shape[1:]))
            raise InputError(f"model {name} cannot take images of {shape}: {str(error).splitlines()[0]}") from error
        if scores.shape != (len(images), num_classes):
            raise InputError(
                f"model {name} gives scores of shape {list(scores.shape[1:])}, but the data has {num_classes} classes: "
                f"set model.num_classes={num_classes}"
            )
        changed = [b for b, x in self.model.named_buffers() if not torch.equal(x, before[b])]
        if changed:
            raise InputError(
                f"model {name} has buffers that training changes ({', '.join(changed[:3])}…): averaging over clients "
                "and control variates cover parameters only, so use GroupNorm or LayerNorm in place of BatchNorm"
            )

    def pixels(self, images: Tensor) -> Tensor:
        """uint8[B, c, h, w] as scaled floats, channels last in memory.

        Into a tensor made that way, because ``contiguous`` takes a single channel for last already, and
        its strides then send the convolutions down the slower path (benchmarks/layout.py).
        """
        scaled = (images.float() - self._mean) / self._std
        return torch.empty(scaled.shape, device=self.device, memory_format=torch.channels_last).copy_(scaled)

    def _put(self, X: Tensor) -> None:
        """Let the model's parameters be X's memory: a tenth of LeNet's gradient quicker than functional_call."""
        for w, x in self.layout.views(X).items():
            self._parameters[w].data = x

    def _losses(self, model: Callable[[Tensor], Tensor], pixels: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of each example."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
            scores = model(pixels)
        return F.cross_entropy(scores.to(self._X0.dtype), labels, reduction="none")


def parts_of(length: int, size: int = TEST_BATCH) -> Iterator[slice]:
    """Slices of ``size`` that cover 0 … length - 1."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def mean_score(scores: Sequence[tuple[float, float]], length: int) -> tuple[float, float]:
    """Accuracy and mean loss from the scores of all parts, in their order."""
    right, loss = (sum(column) for column in zip(*scores, strict=True))
    return right / length, loss / length
