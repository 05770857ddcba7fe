"""The methods of the paper: one algorithm, one row each. Reading this table is reading the comparison.

The rules of a method stand here, its numbers in conf/algorithm/NAME.yaml. LocalMuon is FedMuon without
its control; MuLoCo is LocalMuon with outer momentum, which is a number of the server's step and so
stands in its YAML; SCAFFOLD is FedAvg with a control. A method of your own is a YAML alone (docs/own.md).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from fedmuon_app.algorithms.steps import Adam, Muon, Sgd, StepRule

Control = Literal["none", "gradient", "momentum"]
"""What is corrected by C - C_i, and what becomes C_i:

* ``none``: nothing; there is no C.
* ``gradient``: the gradient, before it enters the momentum; the mean raw gradient of the round. For
  plain SGD this is SCAFFOLD's option II (Karimireddy et al. 2020), and it stays defined with momentum
  and Adam, where option II is not a gradient any more.
* ``momentum``: the momentum, before the step; the round's last momentum (Algorithm 1).
"""


@dataclass(frozen=True)
class Method:
    """A row: the step rule of matrices, the step rule of all other parameters, and the control."""

    matrix_step: StepRule
    vector_step: StepRule
    control: Control = "none"


METHODS: dict[str, Method] = {
    "fedavg": Method(Sgd(), Sgd()),
    "fedavg_adam": Method(Adam(), Adam()),
    "scaffold": Method(Sgd(), Sgd(), "gradient"),
    "scaffold_adam": Method(Adam(), Adam(), "gradient"),
    "localmuon": Method(Muon(), Sgd()),
    "fedmuon": Method(Muon(), Sgd(), "momentum"),
    "muloco": Method(Muon(), Sgd()),
}


@dataclass(frozen=True)
class Hyper:
    """The numbers of a local round that belong to no step rule.

    Attributes:
        lr: η of the matrices.
        vector_lr: η of every other parameter.
        alpha: α in (0, 1], the weight of the new gradient in the momentum (1 - momentum).
        heavy_ball: M ← (1-α)M + g, as torch.optim.SGD does, instead of Algorithm 1's (1-α)M + αg.
        keep_momentum: carry M, and the slots of the step rules, from a client's round to its next one.
        schedule: round, from 1 on ↦ what both step sizes are multiplied by; None: 1.
        weight_decay: λ: each step begins with X_i ← (1 - ηλ) X_i, with the η of the parameter, without the scale of its
            matrix (decoupled, as in torch.optim.Muon and AdamW).
        clip: the norm above which a gradient is scaled down to it, over all parameters; None: none.
        prox: μ of the proximal term (μ/2)‖X_i - X‖² that is added to each client's loss (Li et al. 2020, FedProx).
    """

    lr: float
    vector_lr: float
    alpha: float = 0.1
    heavy_ball: bool = False
    keep_momentum: bool = True
    schedule: Callable[[int], float] | None = None
    weight_decay: float = 0.0
    clip: float | None = None
    prox: float = 0.0

    def at(self, r: int) -> "Hyper":
        """The numbers of round ``r``."""
        factor = 1.0 if self.schedule is None else self.schedule(r)
        return self if factor == 1 else replace(self, lr=factor * self.lr, vector_lr=factor * self.vector_lr)
