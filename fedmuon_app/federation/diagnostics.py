"""What the paper's analysis is about, measured during a run: ‖∇f(X)‖, drift, the bias of the LMO, the error of C."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.algorithms.layout import all_finite
from fedmuon_app.algorithms.norms import schatten, theorem_norm
from fedmuon_app.algorithms.server import Server
from fedmuon_app.algorithms.steps import Muon
from fedmuon_app.federation.callbacks import Callback
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.clients import Clients
from fedmuon_app.federation.states import ClientStates
from fedmuon_app.seeds import rng

MEASURES = {
    "client_drift": "mean ‖X_i - X‖",
    "gradient_norm": "‖∇f(X)‖",
    "gradient_trace_norm": "‖∇f(X)‖_trace",
    "gradient_p_norm": "‖∇f(X)‖_p",
    "lmo_bias": "‖mean lmo(M_i) - lmo(mean M_i)‖",
    "control_error": "‖C - ∇f(X)‖",
}
"""The keys in a line of metrics.jsonl, with their short forms:

* ``client_drift``: mean over the round's replies of ‖X_i - X‖, X being what the round began with.
* ``gradient_norm``: ‖∇f(X)‖_F over all parameters, f = (1/n) Σ f_i, X being what the round ended with.
* ``gradient_trace_norm``, ``gradient_p_norm``: the same over matrices only, summed over them, in the trace norm and in
  Theorem 3's ‖·‖_p, whose p follows from each matrix's own κ and the run's T.
* ``lmo_bias``: ‖(1/n) Σ lmo(M_i) - lmo((1/n) Σ M_i)‖_F over all matrices, without their step scales: section 3's bias.
* ``control_error``: ‖C - ∇f(X)‖_F (αC with a heavy ball under momentum control, whose C is a gradient by α).
"""


@dataclass(frozen=True)
class Diagnostics(Callback):
    """Measures a run at its evaluated rounds.

    Attributes:
        clients: all of them.
        ids: of the n that have data.
        examples: of each client, that ∇f_i is averaged over; fewer where it has fewer.
        states: what the clients keep, where it lies on this machine; None: where it does not, and neither does
            their data: only the drift is known then.
        muon: has the oracle whose bias is measured, whatever the method's own step is.
    """

    clients: Clients
    ids: Sequence[int]
    examples: int
    states: ClientStates | None
    muon: Muon

    @torch.no_grad()
    def measure(self, before: Server, after: RunState, good: Mapping[int, Update]) -> dict[str, float | None]:
        """All MEASURES; None for what is not known, or not defined for this method.

        Args:
            before: the server at the start of the round.
            after: the standing after it.
            good: the replies that were counted.
        """
        drift = [float((u.X - before.X).norm()) for u in good.values()]
        found: dict[str, float | None] = dict.fromkeys(MEASURES)
        found["client_drift"] = sum(drift) / len(drift) if drift else None
        if self.states is None:
            return found
        X, C, hp, control = after.server.X, after.server.C, self.clients.hp, self.clients.method.control
        g = sum((self.gradient(i, X) for i in self.ids), torch.zeros_like(X)) / len(self.ids)
        if not all_finite(g):  # the run is diverging: there is nothing to measure any more
            return found
        layout = self.clients.objective.layout
        layers = layout.as_matrices(g)
        found["gradient_norm"] = float(g.norm())
        found["gradient_trace_norm"] = float(sum(schatten(G, 1) for G in layers))
        found["gradient_p_norm"] = float(sum(theorem_norm(G, self.muon.T) for G in layers))
        found["lmo_bias"] = self.lmo_bias(after)
        if control != "none":
            unit = hp.alpha if hp.heavy_ball and control == "momentum" else 1.0
            found["control_error"] = float((unit * C - g).norm())
        return found

    def gradient(self, client: int, X: Tensor) -> Tensor:
        """∇f_i(X), over the same examples whenever it is asked for."""
        objective, own = self.clients.objective, self.clients.parts[client]
        drawn = rng(objective.seed, "diagnostics", client).permutation(len(own))[: self.examples]
        return objective.mean_gradient(X, self.clients.examples.at(own[drawn]))

    def lmo_bias(self, after: RunState) -> float:
        """See MEASURES; M_i = 0, and so lmo(M_i) = 0, for a client that was never called."""
        assert self.states is not None
        layout = self.clients.objective.layout
        momenta = [layout.as_matrices(self.states.load(i, after.counted[i]).M) for i in self.ids if i in after.counted]
        if not momenta:
            return 0.0
        lmo, n, squares = self.muon.lmo, len(self.ids), 0.0
        for M in zip(*momenta, strict=True):
            bias = sum(lmo(M_i) for M_i in M) / n - lmo(sum(M) / n)
            squares += float(bias.square().sum())
        return squares**0.5
