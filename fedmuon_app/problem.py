"""f_i and f: the gradient oracle of a client, and the test loss, of a model on images."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from fedmuon_app.data.examples import Batch, Examples, Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed, rng

Builder = Callable[[], nn.Module]

TEST_BATCH, TEST_NUMBERS = 250, 250 * 3 * 32 * 32  # images, and numbers in them: LeNet's activations stay in a cache


@dataclass(frozen=True)
class Scaling:
    """What turns bytes into a model's input: (x/255 - mean)/std per channel."""

    mean: Sequence[float]
    std: Sequence[float]


class Problem:
    """Cross-entropy of a model: F_i(X; ξ) with its gradient, and accuracy on a test set.

    The model gives the structure, constant buffers, and the parameters that are not trained. Those that are come with
    every call, as one vector X of float[d].
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
            InputError: what is built is no module that can be trained, or a pattern fits no parameter.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed(seed, "model"))
            self.model = _module(build()).to(device)
        self.seed, self.device, self.augmentation, self._bfloat16 = seed, device, augmentation, bfloat16
        self._mean, self._std = (
            torch.tensor(x, device=device).view(1, -1, 1, 1) * 255 for x in (scaling.mean, scaling.std)
        )
        self._exclude = exclude
        self._train({w: x for w, x in self.model.named_parameters() if x.requires_grad and x.numel()})

    def _train(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Let X be these of the model's parameters; the others keep their values.

        Raises:
            InputError: there is none, they differ in dtype, or a pattern fits none of them.
        """
        name, dtypes = type(self.model).__name__, {x.dtype for x in parameters.values()}
        if not parameters:
            raise InputError(f"model {name} has no parameter to train")
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
            found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            raise InputError(f"model {name} has parameters of {found}: those that are trained must all be float32")
        for pattern in self._exclude:
            if not any(fnmatch(w, pattern) for w in parameters):
                there = ", ".join(parameters)
                raise InputError(f"algorithm.lmo.exclude = {pattern} fits no parameter: there are {there}")
        self._parameters = dict(parameters)
        excluded = [w for w in parameters if any(fnmatch(w, pattern) for pattern in self._exclude)]
        self.layout = Layout.of(parameters, excluded)
        self._X0 = self.layout.flat(parameters).detach()

    def X0(self) -> Tensor:
        """X^(0), the model's drawn weights: a new float[d]."""
        return self._X0.clone()

    def state_dict(self, X: Tensor) -> dict[str, Tensor]:
        """What the model's load_state_dict takes with strict=True: X, parameters that are not trained, and buffers."""
        self._put(X)
        return {
            w: x.detach().cpu().clone(memory_format=torch.contiguous_format) for w, x in self.model.state_dict().items()
        }

    def gradient(self, X: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean cross-entropy of a minibatch and its gradient in X."""
        self._put(X)
        with torch.enable_grad():
            loss = self._losses(self.model, self.pixels(batch.images), batch.labels).mean()
            g = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True, materialize_grads=True)
        return loss.detach(), self.layout.flat(dict(zip(self._parameters, g, strict=True)))

    def mean_gradient(self, X: Tensor, examples: Examples, batch_size: int | None = None) -> Tensor:
        """The gradient of the mean cross-entropy of all ``examples``, not augmented, in evaluation mode."""
        self.model.eval()
        total = torch.zeros_like(X)
        for part in parts_of(examples, batch_size):
            batch = examples.part(part).to(self.device)
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
    ) -> list[Batch]:
        """ξ_i of the local steps first … first + K - 1, augmented; seeds torch for dropout on the way."""
        self.model.train()
        torch.manual_seed(integer_seed(self.seed, "layers", client, first))
        steps = range(first, first + K)
        chosen = [minibatch(self.seed, client, step, len(indices), batch_size) for step in steps]
        drawn = examples.at(indices[np.concatenate(chosen)]).to(self.device)
        sizes = [len(positions) for positions in chosen]
        parts = zip(steps, torch.split(drawn.images, sizes), torch.split(drawn.labels, sizes), strict=True)
        if self.augmentation == "none":
            return [Batch(images, labels) for _, images, labels in parts]
        return [
            Batch(augment(images, self.augmentation, rng(self.seed, "augmentation", client, step)), labels)
            for step, images, labels in parts
        ]

    def evaluate(self, X: Tensor, test: Examples, batch_size: int | None = None) -> tuple[float, float]:
        """Accuracy in [0, 1] and mean cross-entropy of X on all of ``test``."""
        return mean_score([self.score(X, test, part) for part in parts_of(test, batch_size)], len(test))

    @torch.no_grad()
    def confusion(self, X: Tensor, test: Examples, classes: int) -> Tensor:
        """How many test examples of each class (down) are taken for each (across): int64[classes, classes]."""
        self._put(X)
        self.model.eval()
        counts = torch.zeros(classes, classes, dtype=torch.int64)
        for part in parts_of(test):
            batch = test.part(part).to(self.device)
            guesses = self.model(self.pixels(batch.images)).argmax(1)
            counts += torch.bincount(batch.labels * classes + guesses, minlength=classes**2).view(classes, -1).cpu()
        return counts

    @torch.no_grad()
    def score(self, X: Tensor, test: Examples, part: slice) -> tuple[float, float]:
        """The number of examples in a part of ``test`` that X gets right, and the sum of their losses."""
        self.model.eval()
        batch = test.part(part).to(self.device)
        self._put(X)
        scores = self.model(self.pixels(batch.images))
        right = (scores.argmax(1) == batch.labels).sum()
        loss = F.cross_entropy(scores, batch.labels, reduction="sum")
        return float(right), float(loss)

    def check(self, examples: Examples, num_classes: int) -> None:
        """Try the model once: scores of two images, and a gradient of one and of two in training mode.

        Parameters that neither gradient reaches are not trained from now on: X is without them.

        Raises:
            InputError: it does not take these images, gives no score for each class, or cannot be trained.
        """
        name = type(self.model).__name__
        two = examples.at(np.arange(min(2, len(examples)))).to(self.device)
        before = {b: x.clone() for b, x in self.model.named_buffers()}
        scores = [self._tried(two.part(slice(k, k + 1)), num_classes) for k in range(len(two))]
        if not torch.allclose(torch.cat(scores), self._tried(two, num_classes), rtol=1e-2, atol=1e-2):
            raise InputError(
                f"model {name} gives an image other scores when the other images of its batch change (BatchNorm "
                "without running statistics does): use GroupNorm or LayerNorm"
            )
        used: set[str] = set()
        for batch in (two, two.part(slice(1))):
            used |= self._reached(batch)
            changed = [b for b, x in self.model.named_buffers() if not _same(x, before[b])]
            if changed:
                raise InputError(
                    f"model {name} has buffers that training changes ({', '.join(changed[:3])}…): averaging over "
                    "clients and control variates cover parameters only, so use GroupNorm or LayerNorm in place of "
                    "BatchNorm"
                )
        if not all(isinstance(x, Tensor) for x in self.model.state_dict().values()):
            raise InputError(f"model {name} keeps a state that is no tensor (get_extra_state): it cannot be saved")
        if len(used) < len(self._parameters):
            self._train({w: x for w, x in self._parameters.items() if w in used})

    @torch.no_grad()
    def _tried(self, batch: Batch, num_classes: int) -> Tensor:
        """The scores of a batch in evaluation mode.

        Raises:
            InputError: they are none.
        """
        name, shape = type(self.model).__name__, "×".join(map(str, batch.images.shape[1:]))
        self.model.eval()
        try:
            scores = self.model(self.pixels(batch.images))
        except Exception as error:  # whatever somebody's forward does
            raise InputError(f"model {name} cannot take images of {shape}: {_first_line(error)}") from error
        if not isinstance(scores, Tensor):
            raise InputError(
                f"model {name} gives a {type(scores).__name__}: its forward must return one tensor, with a score for "
                "each class"
            )
        if scores.shape != (len(batch), num_classes):
            raise InputError(
                f"model {name} gives scores of shape {list(scores.shape[1:])}, but the data has {num_classes} classes: "
                f"set model.num_classes={num_classes}"
            )
        if not scores.isfinite().all():
            raise InputError(f"model {name} gives scores that are not finite, before any training")
        return scores.to(self._X0.dtype)

    def _reached(self, batch: Batch) -> set[str]:
        """Names of the parameters that the gradient of a batch reaches, in training mode.

        Raises:
            InputError: there is no gradient.
        """
        name, m = type(self.model).__name__, len(batch)
        self.model.train()
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                loss = self._losses(self.model, self.pixels(batch.images), batch.labels).mean()
                g = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True)
        except Exception as error:
            raise InputError(
                f"model {name} cannot be trained on a minibatch of {m} (a client's last one may be as small): "
                f"{_first_line(error)}"
            ) from error
        return {w for w, x in zip(self._parameters, g, strict=True) if x is not None}

    def pixels(self, images: Tensor) -> Tensor:
        """uint8[B, c, h, w] as scaled floats, channels last in memory.

        Into a tensor made that way, because ``contiguous`` takes a single channel for last already, and
        its strides then send the convolutions down the slower path (benchmarks/layout.py).
        """
        scaled = (images.float() - self._mean) / self._std
        ready = torch.empty(scaled.shape, dtype=self._X0.dtype, device=self.device, memory_format=torch.channels_last)
        return ready.copy_(scaled)

    def _put(self, X: Tensor) -> None:
        """Let the model's parameters be X's memory: a tenth of LeNet's gradient quicker than functional_call."""
        for w, x in self.layout.views(X).items():
            self._parameters[w].data = x

    def _losses(self, model: Callable[[Tensor], Tensor], pixels: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of each example."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
            scores = model(pixels)
        return F.cross_entropy(scores.to(self._X0.dtype), labels, reduction="none")


def _module(built: object) -> nn.Module:
    """What a builder made.

    Raises:
        InputError: it is no module, or has parameters whose shape only its first input decides.
    """
    if not isinstance(built, nn.Module):
        raise InputError(f"model._target_ gives a {type(built).__name__}, which is no torch.nn.Module")
    if lazy := [w for w, x in built.named_parameters() if nn.parameter.is_lazy(x)]:
        raise InputError(
            f"model {type(built).__name__} has parameters without a shape ({lazy[0]}): give lazy layers their sizes"
        )
    return built


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same bits of information, NaN included."""
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0] or type(error).__name__


def parts_of(examples: Examples, size: int | None = None) -> Iterator[slice]:
    """Slices of ``size`` that cover all examples; None: as many as suit images of their size."""
    length = len(examples)
    size = size or max(1, min(TEST_BATCH, TEST_NUMBERS // examples.images.shape[1:].numel()))
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def mean_score(scores: Sequence[tuple[float, float]], length: int) -> tuple[float, float]:
    """Accuracy and mean loss from the scores of all parts, in their order."""
    right, loss = (sum(column) for column in zip(*scores, strict=True))
    return right / length, loss / length
