"""Messages out, replies in, on a clock of our own: Flower's looks every 0.1 s in simulation, every 3 s deployed."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedmuon_app.errors import RunError
from fedmuon_app.flower.records import plain, read_call

log = logging.getLogger("fedmuon")

LOOK_FIRST, LOOK_MOST = 0.002, 0.25  # seconds between looks for replies
LOOK_SHARE = 0.02  # of the time waited so far, in between
SURE = 0.8  # of the time that the last round took: until then, a look costs the clients more than it finds
DEAD = re.compile(r"Actor(Died|Unavailable)Error")
LATE_MOST = 256  # replies that are looked for after their round


class DeadActorError(RunError):
    """An actor of Ray has died; Flower never replaces it and goes on giving it messages."""


class Exchange:
    """Asks clients through a grid, and knows a reply that comes after its round was closed."""

    def __init__(self, grid: Grid, on_ray: bool = False) -> None:
        """On ``grid``, whose nodes are actors of Ray or are not."""
        self._grid, self.on_ray = grid, on_ray
        self._late: dict[str, str] = {}  # message ids that nobody waits for any more, and what they were
        self._usual = 0.0  # seconds that the last messages took to be answered

    def send(self, messages: Mapping[int, Message]) -> dict[int, str]:
        """Send the messages; the id of each that has gone, by its key."""
        if not messages:
            return {}
        ids = self._grid.push_messages(list(messages.values()))
        return {key: sent for key, sent in zip(messages, ids, strict=False) if sent}

    def fetch(self, ids: Iterable[str]) -> list[Message]:
        """The replies that are there. One that cannot even be unpacked is somebody's who means no good."""
        ids = list(ids)
        try:
            return list(self._grid.pull_messages(ids)) if ids else []
        except (httpx.HTTPError, ConnectionError):
            raise
        except Exception as error:
            if len(ids) == 1:
                log.warning("a reply that cannot be unpacked (%s: %s)", type(error).__name__, plain(error))
                return []
            return [reply for sent in ids for reply in self.fetch([sent])]

    def ask(
        self,
        messages: Mapping[int, Message],
        timeout: float,
        enough: int | None = None,
        grace: float = 0.0,
        is_good: Callable[[int, Message], bool] = lambda key, reply: not reply.has_error(),
    ) -> dict[int, Message]:
        """Send the messages, and wait until all are answered or it is time to close.

        Args:
            messages: by a key of the caller's (a client, or a node).
            timeout: seconds after which it closes in any case.
            enough: good answers with which it closes once ``grace`` is over; None: all.
            grace: seconds.
            is_good: whether the answer to that key is one; asked once of each.

        Returns:
            The replies by key; a reply that did not come is left out.
        """
        waiting = {sent: key for key, sent in self.send(messages).items()}
        replies: dict[int, Message] = {}
        started, good, since = time.monotonic(), 0, 0.0
        while waiting and (passed := time.monotonic() - started) < timeout:
            if enough is not None and good >= enough:
                since = since or passed
                if passed - since >= grace:
                    break
            new = self.fetch({*waiting, *self._late})
            for reply in new:
                answered = reply.metadata.reply_to_message_id
                if answered in waiting:
                    key = waiting.pop(answered)
                    replies[key] = reply
                    good += is_good(key, reply)
                elif answered in self._late:
                    log.warning("too late: the reply of %s", self._late.pop(answered))
            if waiting and not new:
                ahead = SURE * self._usual - passed
                time.sleep(min(max(LOOK_FIRST, LOOK_SHARE * passed, ahead / 2), LOOK_MOST))
        self._usual = time.monotonic() - started
        self._late |= {sent: _what(messages[key]) for sent, key in waiting.items()}
        for sent in list(self._late)[:-LATE_MOST]:  # these will not come any more
            del self._late[sent]
        return replies


def own_words(error: Error, on_ray: bool = False) -> str:
    """What went wrong, in one line: Flower and Ray wrap a client's exception in its traceback.

    Args:
        error: in place of a reply.
        on_ray: Flower's code 0 means that an actor of Ray has died, or cannot be had.

    Raises:
        DeadActorError: it was not the client's doing.
    """
    reason = error.reason or ""
    if on_ray and error.code == ErrorCode.UNKNOWN and DEAD.search(reason):
        raise DeadActorError("an actor of Ray has died (killed, perhaps for memory), and Flower does not replace it")
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if not lines:
        return f"Flower's error code {error.code}"
    return plain(lines[-1].removeprefix("Exception ClientAppException occurred. Message: ").removesuffix("'>"))


def _what(message: Message) -> str:
    if not message.has_content() or "call" not in message.content.config_records:
        return f"node {message.metadata.dst_node_id}"
    call = message.content.config_records["call"]
    client, call_id, _ = read_call(call)
    return f"client {client} in {call_id}"
