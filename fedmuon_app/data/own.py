"""Data of somebody's own, in the forms that people have it: sequences, torch's and Hugging Face's data sets, arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmuon_app.data.examples import Data, Examples, first, together
from fedmuon_app.data.pictures import folder_scale
from fedmuon_app.errors import InputError

INPUTS, TARGETS = ("img", "image", "input", "x", "text"), ("label", "labels", "target", "y", "fine_label")


def as_data(said: Any, source: str) -> Data:
    """What a loader has given: :class:`Data`, a (train, test), or something that has both by these names.

    Args:
        said: each part is one of :func:`as_examples`'.
        source: its name, for what is said.

    Raises:
        InputError: it is none of these, or the two parts are not alike.
    """
    if isinstance(said, Data):
        return said
    if hasattr(said, "train") and hasattr(said, "test"):
        said = said.train, said.test
    if isinstance(said, Mapping):
        other = next((key for key in ("test", "validation", "valid") if key in said), None)
        if "train" not in said or other is None:
            raise InputError(f"{source} gives parts {', '.join(map(str, said))}: needed are train and test")
        said = said["train"], said[other]
    if not isinstance(said, (tuple, list)) or len(said) != 2:
        raise InputError(f"{source} gives a {type(said).__name__}: needed is (train, test)")
    train, test = (as_examples(part, f"{source}, {name}") for part, name in zip(said, ("train", "test"), strict=True))
    if train.shape != test.shape:
        raise InputError(f"{source}: its train examples are {list(train.shape)}, its test examples {list(test.shape)}")
    mean, std = scale_of(train)
    return Data(train, test, names_of(said[0], train, test), mean, std, columns_of(said[0]))


def scale_of(examples: Examples) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and deviation that images in bytes are scaled by; empty: these are none."""
    x = first(examples.inputs)
    return folder_scale(x.shape[1]) if x.dtype == torch.uint8 and len(x.shape) == 4 else ([], [])


def as_examples(part: Any, source: str) -> Examples:
    """Examples of (inputs, targets) arrays, a Hugging Face data set, or any sequence of (input, target).

    Raises:
        InputError: it is none of these, or its examples are not all alike.
    """
    if isinstance(part, Examples):
        return part
    try:
        if hasattr(part, "column_names"):
            part = _columns(part)
        if isinstance(part, tuple) and len(part) == 2 and all(hasattr(x, "shape") for x in part):
            return Examples(_tensor(part[0]), _targets(_tensor(part[1])))
        pairs = [part[i] for i in range(len(part))]
        inputs, targets = zip(*((x, y) for x, y, *_ in pairs), strict=True)
        return Examples(_stacked(inputs), _targets(torch.stack([_tensor(y) for y in targets])))
    except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
        raise InputError(
            f"{source} cannot be read as (input, target) pairs ({type(error).__name__}: {error})"
        ) from error


def names_of(part: Any, *examples: Examples) -> list[str]:
    """The names of the classes where a part says them, else their numbers; of other targets one for each."""
    said = getattr(part, "classes", None)
    if said is None and hasattr(part, "features"):
        said = next((f.names for f in part.features.values() if hasattr(f, "names")), None)
    if said is not None:
        return [str(name) for name in said]
    y = examples[0].targets
    if y.is_floating_point():
        return [str(k) for k in range(y.shape[-1])]
    most = max((int(one.targets.max()) for one in examples if len(one)), default=-1)
    return [str(k) for k in range(most + 1)]


def columns_of(part: Any) -> dict[str, Sequence[str]]:
    """The columns of words or whole numbers of a Hugging Face data set: what its examples can be dealt by."""
    if not hasattr(part, "column_names"):
        return {}
    plain = [name for name, f in part.features.items() if getattr(f, "dtype", "") in ("string", "int64", "int32")]
    return {name: [str(word) for word in part[name]] for name in plain}


def _columns(part: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a Hugging Face data set: a column that is named so, or else all numbers but the target."""
    there = list(part.column_names)
    target = next((name for name in TARGETS if name in there), there[-1])
    name = next((name for name in INPUTS if name in there), None)
    if name is not None:
        return _stacked(part[name]), _tensor(part[target])
    numbers = [c for c in there if c != target and _is_number(part.features[c])]
    if not numbers:
        raise ValueError(f"it has columns {there}: needed is one of {', '.join(INPUTS)}, or numbers")
    return torch.tensor(np.column_stack([part[c] for c in numbers]), dtype=torch.float32), _tensor(part[target])


def _is_number(feature: Any) -> bool:
    return str(getattr(feature, "dtype", "")).startswith(("float", "int"))


def _stacked(inputs: Sequence[Any]) -> Any:
    """One tensor of all inputs, or one for each part of theirs."""
    return together(lambda many: torch.stack([_tensor(x) for x in many]), inputs)


def _tensor(x: Any) -> Tensor:
    """A number, array, tensor or picture as a tensor; float64 becomes float32, a picture uint8[c, h, w]."""
    if hasattr(x, "getbands"):
        pixels = np.array(x)
        return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())
    tensor = x if isinstance(x, Tensor) else torch.as_tensor(np.array(x))
    return tensor.float() if tensor.dtype in (torch.float64, torch.float16, torch.bfloat16) else tensor


def _targets(y: Tensor) -> Tensor:
    """Whole numbers as int64, and one number an example as a column where it is none."""
    if not y.is_floating_point():
        return y.long()
    return y[:, None] if y.ndim == 1 else y
