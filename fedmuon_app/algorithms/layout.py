"""All parameters of a model as one flat vector, and where each one stands in it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

NamedTensors = Mapping[str, Tensor]

NAMED = 3  # parameters that a sentence names at most


@dataclass(frozen=True)
class Layout:
    """The matrices first, then all other parameters, each kind in the model's order.

    Attributes:
        matrices: name and shape of the parameters that take the method's own rule.
        vectors: the parameters that take the vectors' rule.
        stacked: of some of ``matrices``, how many matrices they are, one above the other; the others are one.
        shapes: of all parameters, in the vector's order.
        sizes: numbers in each of them.
        in_matrices: numbers in all matrices.
        matrix_shapes: of every matrix, in the vector's order; a parameter may be several.
    """

    matrices: Mapping[str, torch.Size]
    vectors: Mapping[str, torch.Size]
    stacked: Mapping[str, int] = field(default_factory=dict)
    shapes: dict[str, torch.Size] = field(init=False)
    sizes: list[int] = field(init=False)
    in_matrices: int = field(init=False)
    matrix_shapes: list[torch.Size] = field(init=False)

    def __post_init__(self) -> None:
        """Work out what follows, once: torch.compile traces through plain attributes."""
        shapes = {**self.matrices, **self.vectors}
        sizes, found = [shape.numel() for shape in shapes.values()], []
        for w, shape in self.matrices.items():
            k = self.stacked.get(w, 1)
            found += [torch.Size((shape[0] // k, *shape[1:]))] * k
        more = {
            "shapes": shapes,
            "sizes": sizes,
            "matrix_shapes": found,
            "in_matrices": sum(sizes[: len(self.matrices)]),
        }
        for name, value in more.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls, parameters: NamedTensors, exclude: Collection[str] = (), stacked: Mapping[str, int] | None = None
    ) -> "Layout":
        """That of a model.

        Args:
            parameters: by name. Those with two or more dimensions are matrices: d1 = shape[0] rows.
            exclude: names of matrices that take the vectors' rule all the same.
            stacked: by name, how many matrices lie in a parameter, one above the other (an attention's three, say).
        """
        matrices = {w: x.shape for w, x in parameters.items() if x.ndim >= 2 and w not in exclude}
        several = {w: k for w, k in (stacked or {}).items() if w in matrices}
        return cls(matrices, {w: x.shape for w, x in parameters.items() if w not in matrices}, several)

    def as_matrices(self, x: Tensor) -> list[Tensor]:
        """The matrices of a vector float[d], each d1 × d2; they share its memory."""
        parts = torch.split(x[: self.in_matrices], [shape.numel() for shape in self.matrix_shapes])
        return [part.view(shape[0], -1) for part, shape in zip(parts, self.matrix_shapes, strict=True)]

    def __len__(self) -> int:
        """Numbers in the vector, d."""
        return sum(self.sizes)

    def flat(self, parameters: NamedTensors) -> Tensor:
        """One new vector float[d] of all parameters."""
        return torch.cat([parameters[w].reshape(-1) for w in self.shapes])

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The parts of a vector float[d] by name, in their shapes; they share its memory."""
        parts = torch.split(x, self.sizes)
        return {w: part.view(shape) for (w, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def not_finite(self, *vectors: Tensor) -> str:
        """Names of some parameters that hold a NaN or an infinity in one of the vectors; empty when all is well."""
        names = {
            w: None for x in vectors if not all_finite(x) for w, part in self.views(x).items() if not all_finite(part)
        }
        some = ", ".join([w for w in self.shapes if w in names][:NAMED])
        return f"{some} and {len(names) - NAMED} more" if len(names) > NAMED else some


def all_finite(x: Tensor) -> bool:
    """Whether no number is NaN or infinite; in one pass without a temporary where all is well."""
    return finite([x])[0]


def finite(vectors: Sequence[Tensor]) -> list[bool]:
    """For each vector, whether no number is NaN or infinite: one wait for a GPU where all is well."""
    sums = numbers([x.sum() for x in vectors])
    return [math.isfinite(s) or bool(x.isfinite().all()) for s, x in zip(sums, vectors, strict=True)]


def numbers(scalars: Sequence[Tensor]) -> list[float]:
    """Scalars of one device as Python's numbers, read in one go: each read on its own would wait for a GPU."""
    read: list[float] = torch.stack([x.detach() for x in scalars]).tolist() if scalars else []
    return read
