"""f_i and f: the gradient oracle of a client, and the test, of a model and a task."""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from fedmuon_app.algorithms.layout import Layout
from fedmuon_app.data.batches import minibatch
from fedmuon_app.data.examples import Batch, Examples, Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed, rng
from fedmuon_app.tasks import Task
from fedmuon_app.tasks.inputs import Pixels, Plain

Builder = Callable[[], nn.Module]

TEST_BATCH, TEST_NUMBERS = 250, 250 * 3 * 32 * 32  # examples, and numbers in them: LeNet's activations stay in a cache


class Objective:
    """The loss of a model: F_i(X; ξ) with its gradient, and what a task measures on a test set.

    The model gives the structure, constant buffers, and the parameters that are not trained. Those that are come with
    every call, as one vector X of float[d].
    """

    def __init__(
        self,
        build: Builder,
        seed: int,
        device: torch.device,
        task: Task,
        inputs: Callable[[torch.dtype], Plain | Pixels],
        exclude: Sequence[str] = (),
        bfloat16: bool = False,
        split: Mapping[str, int] | None = None,
    ) -> None:
        """Build the model with weights drawn from ``seed``.

        Args:
            build: makes the module; called once, with torch's generator seeded.
            seed: of the run.
            device: where training and evaluation happen.
            task: the loss, and what is measured.
            inputs: from the dtype of the parameters to what makes a model's inputs of raw ones.
            exclude: patterns of names of matrices that take the vectors' rule.
            bfloat16: multiply in bfloat16 where torch's autocast does, in training.
            split: by pattern, how many matrices lie in a parameter, one above the other; None: as the model says.

        Raises:
            InputError: what is built is no module that can be trained, or a pattern fits no parameter.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed(seed, "model"))
            self.model = _module(build()).to(device)
        self.seed, self.device, self.task, self._bfloat16 = seed, device, task, bfloat16
        self._exclude = exclude
        self._split = dict(getattr(self.model, "splits", {}) if split is None else split)
        self.train_only({w for w, x in self.model.named_parameters() if x.requires_grad and x.numel()})
        self.inputs = inputs(self._X0.dtype)

    def train_only(self, names: Collection[str]) -> None:
        """Let X be these of the model's parameters; the others keep their values.

        Raises:
            InputError: there is none, they differ in dtype, or a pattern fits none of them.
        """
        parameters = {w: x for w, x in self.model.named_parameters() if w in names}
        name, dtypes = type(self.model).__name__, {x.dtype for x in parameters.values()}
        if not parameters:
            raise InputError(f"model {name} has no parameter to train")
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
            found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            raise InputError(f"model {name} has parameters of {found}: the trained ones must all be float32")
        for key, patterns in (("exclude", self._exclude), ("split", self._split)):
            for pattern in patterns:
                if not any(fnmatch(w, pattern) for w in parameters):
                    there = ", ".join(parameters)
                    raise InputError(f"algorithm.lmo.{key} = {pattern} fits no parameter: there are {there}")
        self.parameters = parameters
        excluded = {w for w in parameters if any(fnmatch(w, pattern) for pattern in self._exclude)}
        excluded |= {w for w, x in parameters.items() if any(x is table for table in self._embeddings())}
        stacked = {w: k for w in parameters for pattern, k in self._split.items() if fnmatch(w, pattern)}
        for w, k in stacked.items():
            if k < 1 or parameters[w].ndim < 2 or parameters[w].shape[0] % k:
                shape = "×".join(map(str, parameters[w].shape))
                raise InputError(f"algorithm.lmo.split: {w} of {shape} is not {k} matrices, one above the other")
        self.layout = Layout.of(parameters, excluded, stacked)
        self._X0 = self.layout.flat(parameters).detach()

    def _embeddings(self) -> list[Tensor]:
        """Tables of embeddings: their rows are looked up, so they take the vectors' rule (Jordan et al. 2024)."""
        return [module.weight for module in self.model.modules() if isinstance(module, nn.Embedding)]

    def X0(self) -> Tensor:
        """X^(0), the model's drawn weights: a new float[d]."""
        return self._X0.clone()

    def state_dict(self, X: Tensor) -> dict[str, Tensor]:
        """What the model's load_state_dict takes with strict=True: X, parameters that are not trained, and buffers."""
        self._put(X)
        return {
            w: x.detach().cpu().clone(memory_format=torch.contiguous_format) for w, x in self.model.state_dict().items()
        }

    def outputs(self, batch: Batch) -> Any:
        """What the model gives for the parameters that it has now."""
        return _called(self.model, self.inputs(batch.inputs))

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a minibatch for the parameters that the model has now."""
        return self._losses(self.model, self.inputs(batch.inputs), batch.targets).mean()

    def gradient(self, X: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of a minibatch and its gradient in X."""
        self._put(X)
        with torch.enable_grad():
            loss = self.loss(batch)
            g = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True, materialize_grads=True)
        return loss.detach(), self.layout.flat(dict(zip(self.parameters, g, strict=True)))

    def mean_gradient(self, X: Tensor, examples: Examples, batch_size: int | None = None) -> Tensor:
        """The gradient of the mean loss of all ``examples``, not augmented, in evaluation mode."""
        self.model.eval()
        total = torch.zeros_like(X)
        for part in parts_of(examples, batch_size):
            batch = examples.part(part).to(self.device)
            total.add_(self.gradient(X, batch)[1], alpha=len(batch) / len(examples))
        return total

    def weighted_gradient(self, X: Tensor, batch: tuple[Any, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """As :meth:`gradient`, in a form that torch.func.vmap can batch over clients.

        Args:
            X: float[d].
            batch: inputs of B examples, their targets, and weights float[B] of sum 1: 0 for padding.
        """

        def loss(X: Tensor) -> Tensor:
            inputs, targets, weights = batch
            model = functools.partial(_with, self.model, self.layout.views(X))
            return (weights * self._losses(model, inputs, targets)).sum()

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
        batches = drawn.pieces([len(positions) for positions in chosen])
        if not self.inputs.augments:
            return batches
        return [
            self.inputs.augmented(batch, rng(self.seed, "augmentation", client, step))
            for step, batch in zip(steps, batches, strict=True)
        ]

    def evaluate(self, X: Tensor, test: Examples, batch_size: int | None = None) -> Mapping[str, float]:
        """What the task measures of X on all of ``test``."""
        return self.measured([self.score(X, test, part) for part in parts_of(test, batch_size)])

    def measured(self, scores: Sequence[Sequence[float]]) -> Mapping[str, float]:
        """The same from the scores of all parts, in their order."""
        totals = [sum(column) for column in zip(*scores, strict=True)]
        return self.task.measured(torch.tensor(totals, dtype=torch.float64))

    @torch.no_grad()
    def confusion(self, X: Tensor, test: Examples, classes: int) -> Tensor:
        """How many test examples of each class (down) are taken for each (across): int64[classes, classes]."""
        self._put(X)
        self.model.eval()
        counts = torch.zeros(classes, classes, dtype=torch.int64)
        for part in parts_of(test):
            batch = test.part(part).to(self.device)
            guesses = self.outputs(batch).argmax(1)
            counts += torch.bincount(batch.targets * classes + guesses, minlength=classes**2).view(classes, -1).cpu()
        return counts

    @torch.no_grad()
    def score(self, X: Tensor, test: Examples, part: slice) -> list[float]:
        """The task's sums over a part of ``test``."""
        self.model.eval()
        batch = test.part(part).to(self.device)
        self._put(X)
        sums: list[float] = self.task.sums(self.outputs(batch), batch.targets).tolist()
        return sums

    def _put(self, X: Tensor) -> None:
        """Let the model's parameters be X's memory: a tenth of LeNet's gradient quicker than functional_call."""
        for w, x in self.layout.views(X).items():
            self.parameters[w].data = x

    def _losses(self, model: Callable[..., Tensor], inputs: Any, targets: Tensor) -> Tensor:
        """The loss of each example."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16):
            outputs = _called(model, inputs)
        return self.task.losses(outputs.to(self._X0.dtype), targets)


def _called(model: Callable[..., Tensor], inputs: Any) -> Tensor:
    """The model's outputs for one tensor, or for several as its arguments or by name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _with(model: nn.Module, parameters: Mapping[str, Tensor], *inputs: Tensor, **named: Tensor) -> Tensor:
    """The model's outputs with other parameters."""
    outputs: Tensor = functional_call(model, dict(parameters), inputs, named)
    return outputs


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


def parts_of(examples: Examples, size: int | None = None) -> Iterator[slice]:
    """Slices of ``size`` that cover all examples; None: as many as suit examples of their size."""
    length = len(examples)
    size = size or max(1, min(TEST_BATCH, TEST_NUMBERS // max(1, examples.shape.numel())))
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
