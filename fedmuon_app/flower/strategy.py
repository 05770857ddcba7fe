"""The Strategy: Flower's messages as an engine of the one round loop."""

import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from fedmuon_app.algorithms.client import Update
from fedmuon_app.config import OWN, Config, shared
from fedmuon_app.errors import InputError, RunError
from fedmuon_app.experiment import Experiment
from fedmuon_app.federation.aggregation import Aggregation
from fedmuon_app.federation.checkpoint import RunState
from fedmuon_app.federation.judging import Judged
from fedmuon_app.federation.loop import accept_replies, aggregation_of, nonempty_clients, run_rounds
from fedmuon_app.federation.protocol import Acknowledged, CallId, Cohort, Failure, Replies, faults
from fedmuon_app.federation.runlog import RunLog
from fedmuon_app.federation.sampling import cohort
from fedmuon_app.flower.arrays import Array, Common
from fedmuon_app.flower.exchange import Exchange, own_words
from fedmuon_app.flower.keys import Owners, named_nodes
from fedmuon_app.flower.nodes import Nodes
from fedmuon_app.flower.records import call, from_record, plain, read_answer, read_verdict, to_record
from fedmuon_app.flower.site import NOT_ASKED, digest

log = logging.getLogger("fedmuon")

LOOK_FOR_NODES = 0.1  # seconds between looks for them
Said = TypeVar("Said")
TELL = 10.0  # seconds of waiting for them after which that is said


class FedMuonStrategy(Strategy):
    """Samples clients by their id from the seed, sends them X and C, and steps with the good replies.

    :meth:`start` runs this project's round loop in place of Flower's, which knows no C, no checkpoint and no resume.
    """

    def __init__(self, experiment: Experiment, runlog: RunLog, config: Config) -> None:
        self.experiment, self.server = experiment, experiment.server
        self._runlog, self._rules, self._config = runlog, config.federation, shared(config)
        self._hash = digest(self._config)
        self._on_ray, self._has_own = config.engine.name == "simulation", config.partition.name == OWN
        self._has_keys = not (self._on_ray or config.engine.insecure)  # keys that are made up prove nothing
        if self._rules.nodes is not None and not self._has_keys:
            raise InputError(f"federation.nodes = {self._rules.nodes}: SuperNodes have no registered keys here")
        self._owners = Owners(runlog.owners, named_nodes(self._rules.nodes, config.federation.num_clients))
        self._model = experiment.model if config.checkpoint.best else None
        self._nodes: Nodes | None = None
        self._clients: list[int] = list(runlog.clients)  # of the experiment, whoever is connected
        self._asked: dict[int, Message] = {}
        self._standing: RunState | None = None  # of Flower's own loop
        self._aggregation: Aggregation | None = None  # of that loop too

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
            timeout: seconds that a round waits for replies, and before it for clients.
            train_config: not used: the run's configuration holds all that clients need.
            evaluate_config: not used.
            evaluate_fn: not used: the experiment evaluates.

        Returns:
            The final X.

        Raises:
            InputError: too few clients have data.
            RunError: too few are connected, several rounds in a row brought nothing, or an actor of Ray died.
        """
        self.summary()
        exchange = Exchange(grid, self._on_ray)
        nodes = self.connect(grid, exchange)
        enough, kind = self._rules.min_replies, Common if self._on_ray else Array

        def present() -> Sequence[int]:
            return self._present(nodes, timeout)

        def train_clients(call_id: CallId, cohort: Cohort, X: Tensor, C: Tensor) -> Replies:
            calls = self._calls(call_id, cohort, to_record(X, kind), to_record(C, kind), nodes.by_client())
            read: Replies = {}

            def is_good(client: int, reply: Message) -> bool:
                read[client] = self._read(client, reply)
                update = read[client]
                # accept_replies() looks through all of them later: here it only matters where a round may close early
                return isinstance(update, Update) and (enough is None or not faults({client: update}, X, C))

            exchange.ask(calls, timeout, enough, self._rules.grace, is_good)
            return {client: read.get(client) or self._read(client, None) for client in cohort}

        def judge(call_id: CallId, clients: Sequence[int], X: Tensor) -> Mapping[int, Judged | Failure]:
            cohort, nothing = dict.fromkeys(clients, Acknowledged()), to_record(X[:0])
            calls = self._calls(call_id, cohort, to_record(X, kind), nothing, nodes.by_client(), MessageType.EVALUATE)
            replies = exchange.ask(calls, timeout, enough and min(enough, len(calls)), self._rules.grace)
            read = functools.partial(read_verdict, metric=self._runlog.metric)
            return {client: self._heard(client, replies.get(client), read) for client in clients}

        plan = replace(self.experiment.plan, rounds=num_rounds)
        server = replace(self.server, X=from_record(initial_arrays).to(self.server.X.device))
        self.server = run_rounds(
            plan,
            self._clients,
            server,
            train_clients,
            self.experiment.evaluate,
            self._runlog,
            present,
            judge,
            self._model,
        )
        return Result(arrays=to_record(self.server.X))

    def connect(self, grid: Grid, exchange: Exchange) -> Nodes:
        """Wait for the clients, all of them or, when ``connect_timeout`` is over, as many as a round needs.

        Raises:
            InputError: too few have data.
            RunError: too few have come.
        """
        n, said = len(self.experiment.clients.parts), {"experiment": self._runlog.experiment, "config": self._config}
        self._nodes = nodes = Nodes(
            grid, exchange, n, lambda: RecordDict({"about": ConfigRecord({**said})}),
            self._owners, self._rules.connect_timeout, self._has_keys,
        )  # fmt: skip
        deadline = time.monotonic() + self._rules.connect_timeout
        while True:
            nodes.look()
            missing = sorted(set(self._clients or range(n)) - nodes.by_client().keys())
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(LOOK_FOR_NODES)
        if not self._clients:
            known = dict.fromkeys(range(n), 1) if self._has_own else self.experiment.sizes()  # who is away is not empty
            self._clients = nonempty_clients(known | nodes.sizes(), self.experiment.plan.clients_per_round)
        if missing:
            log.warning("not connected: client %s", plain(", ".join(map(str, missing))))
            self._present(nodes, 0.0)
        return nodes

    def _present(self, nodes: Nodes, timeout: float) -> list[int]:
        """The clients of a round: all that are connected now and have data; waits until they are enough.

        Raises:
            RunError: they are too few for ``timeout`` seconds.
        """
        needed = self._rules.min_replies or self.experiment.plan.clients_per_round
        started, told = time.monotonic(), False
        while True:
            nodes.look()
            there = nodes.sizes()
            clients = [i for i in self._clients if there.get(i)]
            if len(clients) >= needed:
                return clients
            waited = time.monotonic() - started
            said = f"{len(clients)} clients are connected, and a round needs {needed}"
            if waited >= timeout:
                raise RunError("; ".join([f"{said} (`flwr supernode list` shows the nodes)", *sorted(nodes.refusals)]))
            if not told and waited > TELL:
                told = True
                log.warning("%s: waiting for them, %g s at most", said, timeout)
            time.sleep(LOOK_FOR_NODES)

    def _calls(
        self,
        call_id: CallId,
        cohort: Cohort,
        X: ArrayRecord,
        C: ArrayRecord,
        nodes: Mapping[int, int],
        kind: str = MessageType.TRAIN,
    ) -> dict[int, Message]:
        """A message to each client; all share the same X and C."""
        about = {"experiment": self._runlog.experiment, "hash": self._hash}
        self._asked = {
            i: Message(call(X, C, i, call_id, counted, about), dst_node_id=nodes[i], message_type=kind)
            for i, counted in cohort.items()
            if i in nodes  # the gradient start asks everyone, and some may have left
        }
        return self._asked

    def _read(self, client: int, reply: Message | None) -> Update | Failure:
        """A client's update, or why there is none that can be used."""
        return self._heard(client, reply, lambda heard, asked: read_answer(heard, asked, self.server.X.device))

    def _heard(self, client: int, reply: Message | None, read: Callable[[Message, Message], Said]) -> Said | Failure:
        """What a client has answered, or why that cannot be used.

        Args:
            client: its id.
            reply: None: none came.
            read: reads a (reply, call).

        Raises:
            DeadActorError: an actor of Ray has died.
        """
        if reply is None:
            return Failure("no reply in time" if client in self._asked else "not connected")
        if reply.has_error():
            words = own_words(reply.error, self._on_ray)
            if words == NOT_ASKED and self._nodes is not None:
                self._nodes.forget(self._asked[client].metadata.dst_node_id)
            return Failure(words)
        try:
            return read(reply, self._asked[client])
        except ValueError as error:
            return Failure(plain(error))

    # Flower's own loop calls these. They are one round of ours, in its two halves.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """X as given and the server's C, for S_r."""
        if self._nodes is None:
            self.connect(grid, Exchange(grid, self._on_ray))
        assert self._nodes is not None
        if self._standing is None:
            self._standing = self._runlog.begin(self.server, 0, self.experiment.plan.rounds, self._clients)
            self._aggregation = aggregation_of(self.experiment.plan, self._standing, self._runlog)
        plan = self.experiment.plan
        sampled = self._standing.cohort(cohort(plan.seed, server_round, self._clients, plan.clients_per_round))
        C, call_id = to_record(self.server.C), CallId(self._standing.attempt, server_round)
        return self._calls(call_id, sampled, arrays, C, self._nodes.by_client()).values()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step with the good replies."""
        assert self._standing is not None
        calls = {message.metadata.message_id: client for client, message in self._asked.items()}
        by_client = {calls[reply.metadata.reply_to_message_id]: reply for reply in replies}
        read = {client: self._read(client, by_client.get(client)) for client in self._asked}
        assert self._aggregation is not None
        standing, bound = replace(self._standing, server=self.server), self.experiment.plan.norm_bound
        good, reasons = accept_replies(server_round, read, self.server, self._runlog, bound, self._aggregation)
        if good:
            self.server = self._aggregation.step(standing, CallId(standing.attempt, server_round), good)
        self._standing = self._standing.after(server_round, self.server, list(good), reasons.values())
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
        plan, n = self.experiment.plan, len(self.experiment.clients.parts)
        log.info("%d rounds, %d of %d clients in each, seed %d", plan.rounds, plan.clients_per_round, n, plan.seed)
