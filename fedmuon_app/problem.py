"""f_i and f: the gradient oracle of a client, and the test loss, of a model on images."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedmuon_app.algorithms.params import Params
from fedmuon_app.data.augment import augment
from fedmuon_app.data.batches import minibatch
from fedmuon_app.data.examples import Examples, Indices
from fedmuon_app.errors import InputError
from fedmuon_app.seeds import integer_seed, rng

Builder = Callable[[], nn.Module]


class Problem:
    """Cross-entropy of a model: F_i(X; ξ) with its gradient, and accuracy on a test set.

    The model holds the structure and constant buffers only; its parameters come with every call.
    """

    def __init__(
        self,
        build: Builder,
        seed: int,
        device: torch.device,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: str,
    ) -> None:
        """Build the model with weights drawn from ``seed``.

        Args:
            build: makes the module; called once, with torch's generator seeded.
            seed: of the run.
            device: where training and evaluation happen.
            mean: of the pixels in [0, 1], per channel.
            std: likewise.
            augmentation: one of :data:`fedmuon_app.data.augment.AUGMENTATIONS`.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed(seed, "model"))
            self.model = build().to(device)
        self.seed, self.device, self.augmentation = seed, device, augmentation
        self._mean = torch.tensor(mean, device=device).view(1, -1, 1, 1) * 255
        self._std = torch.tensor(std, device=device).view(1, -1, 1, 1) * 255

    def X0(self) -> dict[str, Tensor]:
        """X^(0), the model's drawn weights: a copy."""
        return {w: p.detach().clone() for w, p in self.model.named_parameters()}

    def gradient(self, X: Params, batch: Examples) -> tuple[Tensor, Params]:
        """The mean cross-entropy of a minibatch and its gradient in X."""
        leaves = {w: x.detach().requires_grad_() for w, x in X.items()}
        with torch.enable_grad():
            scores = functional_call(self.model, leaves, (self._pixels(batch.images),))
            loss = F.cross_entropy(scores, batch.labels)
            g = torch.autograd.grad(loss, list(leaves.values()))
        return loss.detach(), dict(zip(leaves, g, strict=True))

    def minibatches(
        self, client: int, examples: Examples, indices: Indices, first: int, K: int, batch_size: int
    ) -> Iterator[Examples]:
        """ξ_i of the local steps first … first + K - 1, augmented; seeds torch for dropout on the way."""
        self.model.train()
        for step in range(first, first + K):
            torch.manual_seed(integer_seed(self.seed, "layers", client, step))
            chosen = indices[minibatch(self.seed, client, step, len(indices), batch_size)]
            batch = examples.at(chosen).to(self.device)
            draws = rng(self.seed, "augmentation", client, step)
            yield Examples(augment(batch.images, self.augmentation, draws), batch.labels)

    @torch.no_grad()
    def evaluate(self, X: Params, test: Examples, batch_size: int = 500) -> tuple[float, float]:
        """Accuracy in [0, 1] and mean cross-entropy of X on all of ``test``."""
        self.model.eval()
        right, loss = 0.0, 0.0
        for start in range(0, len(test), batch_size):
            part = test.at(np.arange(start, min(start + batch_size, len(test)))).to(self.device)
            scores = functional_call(self.model, dict(X), (self._pixels(part.images),))
            right += float((scores.argmax(1) == part.labels).sum())
            loss += float(F.cross_entropy(scores, part.labels, reduction="sum"))
        return right / len(test), loss / len(test)

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
                scores = self.model(self._pixels(images))
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

    def _pixels(self, images: Tensor) -> Tensor:
        """Scaled pixels, channels last in memory.

        Into a tensor made that way, because ``contiguous`` takes a single channel for last already, and
        its strides then send the convolutions down the slower path (benchmarks/layout.py).
        """
        pixels = (images.float() - self._mean) / self._std
        return torch.empty(pixels.shape, device=self.device, memory_format=torch.channels_last).copy_(pixels)
