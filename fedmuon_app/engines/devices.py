"""A worker a device, each in a process of its own that is begun anew: a GPU does not outlive a fork."""

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

import torch
import torch.multiprocessing
from torch import Tensor

from fedmuon_app.config import Config, dump, loads
from fedmuon_app.engines.workers import Workers, work
from fedmuon_app.experiment import Experiment, build
from fedmuon_app.federation.states import ClientStates


class DeviceWorkers(Workers):
    """Workers, one a device; a context manager. States go through a file: any device may play a client next."""

    def __init__(
        self, experiment: Experiment, c: Config, states: Callable[[torch.device], ClientStates], most: int
    ) -> None:
        """Begin them.

        Args:
            experiment: the run, on the CPU.
            c: its configuration, from which each builds it again; ``engine.devices`` names the devices.
            states: opens the clients' states for a device; must be fit for pickle.
            most: clients that a round may call.
        """
        self._share(experiment, most, _shared)
        spawn = torch.multiprocessing.get_context("spawn")
        for device in c.engine.devices or []:
            here, there = spawn.Pipe()
            self._pipes.append(here)
            arguments = there, dump(replace(c, device=device)), states, self._model, self._slots
            self._begin(spawn.Process(target=_spawned, args=arguments, daemon=True), there)


def _spawned(
    pipe: Connection,
    config: str,
    states: Callable[[torch.device], ClientStates],
    model: Tensor,
    slots: Tensor,
) -> None:
    experiment = build(loads(config))
    work(pipe, experiment, states(experiment.clients.objective.device), model, slots)


def _shared(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Zeros in memory that processes share by its name."""
    return torch.zeros(rows, columns, dtype=dtype).share_memory_()  # type: ignore[no-untyped-call]
