"""The methods of the paper: one algorithm, one row each. Reading this table is reading the comparison.

The rule of a method stands here, its numbers in conf/algorithm/NAME.yaml. LocalMuon is FedMuon without
its control; MuLoCo is LocalMuon with outer momentum, which is a number of the server's step and so
stands in its YAML; SCAFFOLD is FedAvg with a control.
"""

from dataclasses import dataclass
from typing import Literal

from fedmuon_app.algorithms.steps import StepRule, adam, descent, muon

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
    """A row: the step rule of matrices, that of all other parameters, and the control."""

    matrix_step: StepRule
    vector_step: StepRule
    control: Control = "none"


METHODS: dict[str, Method] = {
    "fedavg": Method(descent, descent),
    "fedavg_adam": Method(adam, adam),
    "scaffold": Method(descent, descent, "gradient"),
    "scaffold_adam": Method(adam, adam, "gradient"),
    "localmuon": Method(muon, descent),
    "fedmuon": Method(muon, descent, "momentum"),
    "muloco": Method(muon, descent),
}
