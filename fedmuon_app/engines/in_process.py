"""The engine without Flower: the round loop and all clients in this process, nothing serialised."""

from collections.abc import Sequence
from pathlib import Path

from fedmuon_app.algorithms.client import NonFiniteError
from fedmuon_app.algorithms.params import Params
from fedmuon_app.build import build, header
from fedmuon_app.config import Config
from fedmuon_app.engines.progress import Progress
from fedmuon_app.federation.loop import run_rounds, with_data
from fedmuon_app.federation.replies import Failure, Replies
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.states import MemoryStates


def run(c: Config, folder: Path) -> None:
    """Train as ``c`` says and write the run's folder.

    Raises:
        InputError: something the user can mend, before training.
        NoGoodReplyError: training diverged in every client, several rounds in a row.
    """
    job = build(c)
    ids, states = with_data(job.sizes(), job.plan.clients_per_round), MemoryStates()

    def train_clients(r: int, cohort: Sequence[int], X: Params, C: Params) -> Replies:
        replies: Replies = {}
        for i in cohort:
            try:
                if r == 0:
                    replies[i], state = job.clients.start(i, X)
                else:
                    replies[i], state = job.clients.train(i, X, C, states.load(i))
                states.save(i, state)
            except NonFiniteError as error:
                replies[i] = Failure(str(error))
        return replies

    with Progress(c.rounds, c.algorithm.name) as progress:
        runlog = RunLog(folder, header(c), progress)
        server = run_rounds(job.plan, ids, job.server, train_clients, job.evaluate, runlog)
        runlog.finish(server.X)
