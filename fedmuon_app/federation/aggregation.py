"""From the good replies of a round to the server's next X, C and U, by the rule of ``federation.aggregate``.

Whatever the rule, C is that aggregate of the C_i: a rule that leaves whole clients out leaves their C_i as they were,
like any reply that is not counted; one that trims coordinates keeps the C_i on the server and takes C anew from all.
"""

import functools
import statistics
from collections.abc import Mapping

import torch
from torch import Tensor

from fedmuon_app.algorithms.aggregation import median, multi_krum, trimmed_mean
from fedmuon_app.algorithms.client import ClientState, Update
from fedmuon_app.algorithms.layout import numbers
from fedmuon_app.algorithms.server import Server, outer_step, server_step
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.protocol import NEVER, CallId
from fedmuon_app.federation.states import ClientStates

COORDINATES = ("trimmed_mean", "median")  # rules that need the C_i


def controls_like(C: Tensor) -> ClientState:
    """A row of the server's C_i: a client's state that is nothing but C_i."""
    return ClientState(C, C)


class Aggregation:
    """The server's step of a run."""

    def __init__(
        self, rule: str, f: int, outer_lr: float, outer_momentum: float, controls: ClientStates | None = None
    ) -> None:
        """Set the rule.

        Args:
            rule: mean, multi_krum, trimmed_mean or median.
            f: clients that may mean no good.
            outer_lr: η_s.
            outer_momentum: μ.
            controls: the C_i by client (:func:`controls_like`), for a rule of COORDINATES and a method with a control.
        """
        self._rule, self._f, self._outer, self._controls = rule, f, (outer_lr, outer_momentum), controls

    def left_out(self, good: Mapping[int, Update], X: Tensor) -> dict[int, str]:
        """The clients whose good replies are not to be counted, and why."""
        if self._rule != "multi_krum" or len(good) < 3:
            return {}
        return dict.fromkeys(good.keys() - set(multi_krum(good, X, self._f)), "too far from the others (multi_krum)")

    def step(self, standing: RunState, call_id: CallId, good: Mapping[int, Update]) -> Server:
        """The server after a round with these replies, in the order of client ids."""
        server, n = standing.server, len(standing.clients)
        if self._rule not in COORDINATES:
            return server_step(server, list(good.values()), n, *self._outer)
        rule = median if self._rule == "median" else functools.partial(trimmed_mean, f=self._f)
        delta = rule([u.X - server.X for u in good.values()]) * (len(good) / n)
        C = server.C
        if self._controls is not None:
            C = rule([self._control(i, standing, call_id, good.get(i), self._controls) for i in standing.clients])
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
