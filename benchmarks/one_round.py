"""One round after the other of an experiment, for whoever takes the time."""

from collections.abc import Callable
from itertools import count

from fedmuon_app.algorithms.server import server_step
from fedmuon_app.experiment import Experiment
from fedmuon_app.federation.loop import TrainClients
from fedmuon_app.federation.protocol import Acknowledged, CallId
from fedmuon_app.federation.sampling import cohort


def rounds_of_job(experiment: Experiment, train_clients: TrainClients) -> Callable[[], None]:
    """A function that plays one round of the engine, without evaluation or log."""
    server, numbers, n = experiment.server, count(1), len(experiment.clients.parts)
    counted = dict.fromkeys(range(n), Acknowledged())

    def one_round() -> None:
        nonlocal server
        r = next(numbers)
        sampled = cohort(experiment.plan.seed, r, range(n), experiment.plan.clients_per_round)
        replies = train_clients(CallId(1, r), {i: counted[i] for i in sampled}, server.X, server.C)
        server = server_step(server, [replies[i] for i in sampled], n)
        counted.update(dict.fromkeys(sampled, Acknowledged(CallId(1, r))))

    return one_round
