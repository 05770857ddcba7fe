"""The Strategy: Flower's messages as an engine of the one round loop."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from fedmuon_app.algorithms.server import server_step
from fedmuon_app.build import Job
from fedmuon_app.errors import InputError
from fedmuon_app.federation.loop import run_rounds, usable, with_data
from fedmuon_app.federation.replies import Failure, Replies
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.sampling import cohort
from fedmuon_app.flower.records import call, from_record, read_reply, read_sizes, to_record

log = logging.getLogger("fedmuon")

CONNECT = 60.0  # seconds that Flower's own loop waits for nodes
LOOK_FOR_NODES = 0.1  # seconds between looks for them
POLL_FIRST, POLL_MOST = 0.002, 0.02  # seconds between looks for replies, doubling in between


class FedMuonStrategy(Strategy):
    """Samples clients by their id from the seed, sends them X and C, and steps with the good replies.

    :meth:`start` runs this project's round loop in place of Flower's, which knows no C.
    """

    def __init__(self, job: Job, runlog: RunLog) -> None:
        self.job, self._runlog = job, runlog
        self.server = job.server
        self._nodes: dict[int, int] = {}  # client to the node that plays it
        self._clients: list[int] = []  # those with data
        self._asked: list[tuple[int, Message]] = []

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train, and leave the final server in ``self.server``.

        Args:
            grid: Flower's way to the nodes.
            initial_arrays: X^(0).
            num_rounds: R.
            timeout: seconds that a round waits for replies.
            train_config: not used: the run's configuration holds all that clients need.
            evaluate_config: not used.
            evaluate_fn: not used: the job evaluates.

        Returns:
            The final X.

        Raises:
            InputError: not all clients are connected, or too few have data.
            NoGoodReplyError: several rounds in a row brought nothing.
        """
        self.summary()
        self.connect(grid, timeout)

        def train_clients(r: int, cohort: Sequence[int], X: Tensor, C: Tensor) -> Replies:
            return self._read(r, exchange(grid, self._calls(r, cohort, to_record(X), to_record(C)), timeout))

        plan = replace(self.job.plan, rounds=num_rounds)
        server = replace(self.server, X=from_record(initial_arrays).to(self.server.X.device))
        self.server = run_rounds(plan, self._clients, server, train_clients, self.job.evaluate, self._runlog)
        return Result(arrays=to_record(self.server.X))

    def connect(self, grid: Grid, timeout: float) -> None:
        """Learn which node plays which client, and which have data; wait for those that are not there yet.

        Raises:
            InputError: some client has no node within ``timeout`` seconds, or too few have data.
        """
        sizes: dict[int, int] = {}
        known: set[int] = set()
        wanted, deadline = set(self.job.sizes()), time.monotonic() + timeout
        while not wanted <= sizes.keys():
            new = sorted(set(grid.get_node_ids()) - known)
            queries = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in new]
            for reply in exchange(grid, queries, timeout):
                if reply.has_error():
                    raise InputError(f"a node cannot take part: {own_words(reply.error)}")
                node = reply.metadata.src_node_id
                known.add(node)
                played = read_sizes(reply)
                sizes |= played
                self._nodes |= dict.fromkeys(played, node)
            missing = sorted(wanted - sizes.keys())
            if missing and time.monotonic() > deadline:
                raise InputError(f"clients {missing} have no node after {timeout:.0f} s")
            if not new:
                time.sleep(LOOK_FOR_NODES)
        self._clients = with_data(sizes, self.job.plan.clients_per_round)

    def _calls(self, r: int, cohort: Sequence[int], X: ArrayRecord, C: ArrayRecord) -> list[Message]:
        """A message to each client; all share the same X and C."""
        self._asked = [
            (i, Message(call(X, C, i, r), dst_node_id=self._nodes[i], message_type=MessageType.TRAIN)) for i in cohort
        ]
        return [message for _, message in self._asked]

    def _read(self, r: int, replies: Iterable[Message]) -> Replies:
        """What each client that was asked has answered, or why that cannot be used."""
        by_call = {reply.metadata.reply_to_message_id: reply for reply in replies}
        read: Replies = {}
        for client, message in self._asked:
            reply = by_call.get(message.metadata.message_id)
            if reply is None:
                read[client] = Failure("no reply in time")
            elif reply.has_error():
                read[client] = Failure(own_words(reply.error))
            else:
                try:
                    read[client] = read_reply(reply, client, r, self.server.X.device)
                except ValueError as error:
                    read[client] = Failure(str(error))
        return read

    # Flower's own loop calls these. They are one round of ours, in its two halves.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """X as given and the server's C, for S_r."""
        if not self._clients:
            self.connect(grid, CONNECT)
        plan = self.job.plan
        sampled = cohort(plan.seed, server_round, self._clients, plan.clients_per_round)
        return self._calls(server_round, sampled, arrays, to_record(self.server.C))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step with the good replies."""
        good = usable(server_round, self._read(server_round, replies), self.server, self._runlog)
        if good:
            plan = self.job.plan
            self.server = server_step(self.server, good, len(self._clients), plan.outer_lr, plan.outer_momentum)
        return to_record(self.server.X), MetricRecord({"replies": len(good)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: the server tests X by itself."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing: nobody was asked."""
        return None

    def summary(self) -> None:
        """Log what is about to run."""
        plan, n = self.job.plan, len(self.job.clients.parts)
        log.info("%d rounds, %d of %d clients in each, seed %d", plan.rounds, plan.clients_per_round, n, plan.seed)


def own_words(error: Error) -> str:
    """What went wrong, in one line: Flower and Ray wrap a client's exception in its traceback."""
    lines = [line.strip() for line in (error.reason or "").splitlines() if line.strip()]
    if not lines:
        return f"Flower's error code {error.code}"
    return lines[-1].removeprefix("Exception ClientAppException occurred. Message: ").removesuffix("'>")


def exchange(grid: Grid, messages: Sequence[Message], timeout: float) -> list[Message]:
    """Push messages and pull the replies until all are there or ``timeout`` seconds are over.

    Flower's send_and_receive does the same with a fixed clock, of 0.1 s in simulation and 3 s deployed.
    """
    waiting = {i for i in grid.push_messages(messages) if i}
    replies: list[Message] = []
    deadline, pause = time.monotonic() + timeout, POLL_FIRST
    while waiting and time.monotonic() < deadline:
        new = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in new}
        replies += new
        pause = POLL_FIRST if new else min(2 * pause, POLL_MOST)
        if waiting:
            time.sleep(pause)
    return replies
