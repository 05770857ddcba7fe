"""From the good replies of a round to the server's next X, C and U, by the rule of ``federation.aggregate``.

Whatever the rule, C is the same aggregate of the C_i: one that leaves whole clients out leaves their C_i as they were,
like any reply that is not counted; one by coordinate keeps the C_i on the server and takes C anew from all.
"""

import statistics
from collections.abc import Mapping

import torch
from torch import Tensor

from fedmuon_app.algorithms.aggregation import Rule
from fedmuon_app.algorithms.client import ClientState, Update
from fedmuon_app.algorithms.layout import numbers
from fedmuon_app.algorithms.server import Server, outer_step, server_step
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.protocol import NEVER, CallId
from fedmuon_app.federation.states import ClientStates


def controls_like(C: Tensor) -> ClientState:
    """A row of the server's C_i: a client's state that is nothing but C_i."""
    return ClientState(C, C)


class Aggregation:
    """The server's step of a run."""

    def __init__(
        self, rule: Rule, outer_lr: float, outer_momentum: float, controls: ClientStates | None = None
    ) -> None:
        """Set the rule.

        Args:
            rule: which replies count, and how they are taken together.
            outer_lr: η_s.
            outer_momentum: μ.
            controls: the C_i by client (:func:`controls_like`), for a rule by coordinate and a method with a control.
        """
        self._rule, self._outer, self._controls = rule, (outer_lr, outer_momentum), controls

    def left_out(self, good: Mapping[int, Update], X: Tensor) -> dict[int, str]:
        """The clients whose good replies are not to be counted, and why."""
        kept = self._rule.kept(good, X) if good else []
        return dict.fromkeys(good.keys() - set(kept), f"left out by federation.aggregate ({type(self._rule).__name__})")

    def step(self, standing: RunState, call_id: CallId, good: Mapping[int, Update]) -> Server:
        """The server after a round with these replies, in the order of client ids."""
        server, n = standing.server, len(standing.clients)
        rule = self._rule
        if not rule.by_coordinate:
            return server_step(server, list(good.values()), n, *self._outer)
        delta = rule.centre([u.X - server.X for u in good.values()]) * (len(good) / n)
        C = server.C
        if self._controls is not None:
            kept = self._controls
            C = rule.centre([self._control(i, standing, call_id, good.get(i), kept) for i in standing.clients])
        return outer_step(server, delta, C, *self._outer)

    @staticmethod
    def _control(
        client: int, standing: RunState, call_id: CallId, update: Update | None, controls: ClientStates
    ) -> Tensor:
        """C_i after the round."""
        counted = standing.cohort([client])[client]
        never = counted.last == NEVER
        C_i = torch.zeros_like(standing.server.C) if never else controls.load(client, counted.last).M
        if update is not None:
            C_i = C_i + update.dC
            controls.save(client, call_id, controls_like(C_i), counted)
        return C_i


def bent(C: Tensor, good: Mapping[int, Update], bound: float | None) -> str | None:
    """Why C looks bent by updates that were each within the bound; None when it does not."""
    if bound is None or not len(C) or len(good) < 3:
        return None
    size, *changes = numbers([C.norm(), *(u.dC.norm() for u in good.values())])
    usual = statistics.median(changes)
    if size <= bound * usual:
        return None
    return (
        f"‖C‖ = {size:.3g} is more than {bound:g} times the round's median ‖ΔC_i‖: clients may be bending it "
        "little by little; federation.aggregate = median or trimmed_mean bounds what they can do"
    )
