"""A model is tried once, before anything trains: whether it takes the data, gives what the task needs, and learns."""

import numpy as np
import torch
from torch import Tensor

from fedmuon_app.data.examples import Batch, Examples
from fedmuon_app.errors import InputError
from fedmuon_app.objective import Objective


def try_model(objective: Objective, examples: Examples, outputs: int) -> None:
    """Try what the model gives for two examples, and a gradient of one and of two in training mode.

    Parameters that neither gradient reaches are not trained from now on: X is without them.

    Args:
        objective: with the model.
        examples: at least one.
        outputs: classes or quantities of the data.

    Raises:
        InputError: it does not take these inputs, gives other outputs than the task needs, or cannot be trained.
    """
    model, name = objective.model, type(objective.model).__name__
    two = examples.at(np.arange(min(2, len(examples)))).to(objective.device)
    before = {b: x.clone() for b, x in model.named_buffers()}
    found = [_tried(objective, two.part(slice(k, k + 1)), outputs) for k in range(len(two))]
    if not torch.allclose(torch.cat(found), _tried(objective, two, outputs), rtol=1e-2, atol=1e-2):
        raise InputError(
            f"model {name} gives an example other outputs when the other examples of its batch change (BatchNorm "
            "without running statistics does): use GroupNorm or LayerNorm"
        )
    used: set[str] = set()
    for batch in (two, two.part(slice(1))):
        used |= _reached(objective, batch)
        changed = [b for b, x in model.named_buffers() if not _same(x, before[b])]
        if changed:
            raise InputError(
                f"model {name} has buffers that training changes ({', '.join(changed[:3])}…): averaging over "
                "clients and control variates cover parameters only, so use GroupNorm or LayerNorm in place of "
                "BatchNorm"
            )
    if not all(isinstance(x, Tensor) for x in model.state_dict().values()):
        raise InputError(f"model {name} keeps a state that is no tensor (get_extra_state): it cannot be saved")
    if len(used) < len(objective.parameters):
        objective.train_only(used)


@torch.no_grad()
def _tried(objective: Objective, batch: Batch, outputs: int) -> Tensor:
    """What the model gives for a batch in evaluation mode.

    Raises:
        InputError: that is not what the task needs.
    """
    name, shape = type(objective.model).__name__, "×".join(map(str, batch.shape))
    objective.model.eval()
    try:
        found = objective.outputs(batch)
    except Exception as error:  # whatever somebody's forward does
        raise InputError(f"model {name} cannot take inputs of {shape}: {_first_line(error)}") from error
    if not isinstance(found, Tensor):
        raise InputError(f"model {name} gives a {type(found).__name__}: its forward must return one tensor")
    task = objective.task
    wanted = task.shape(batch.targets, outputs)
    if found.shape != wanted:
        raise InputError(
            f"model {name} gives outputs of shape {list(found.shape[1:])} for each example, and "
            f"{type(task).__name__} needs {list(wanted[1:])} (the data has {outputs} classes or quantities: "
            f"model.num_classes={outputs})"
        )
    if not found.isfinite().all():
        raise InputError(f"model {name} gives outputs that are not finite, before any training")
    return found.float()


def _reached(objective: Objective, batch: Batch) -> set[str]:
    """Names of the parameters that the gradient of a batch reaches, in training mode.

    Raises:
        InputError: there is no gradient.
    """
    name, m = type(objective.model).__name__, len(batch)
    objective.model.train()
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            g = torch.autograd.grad(objective.loss(batch), list(objective.parameters.values()), allow_unused=True)
    except Exception as error:
        raise InputError(
            f"model {name} cannot be trained on a minibatch of {m} (a client's last one may be as small): "
            f"{_first_line(error)}"
        ) from error
    return {w for w, x in zip(objective.parameters, g, strict=True) if x is not None}


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors hold the same bits of information, NaN included."""
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0] or type(error).__name__
