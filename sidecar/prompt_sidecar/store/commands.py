"""Commands to the store: counted, and not sent while a server does not answer. Changes of that are logged."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from prompt_sidecar import slots
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import StoreCommand, StoreLoss, StoreReply
from prompt_sidecar.store import layout
from prompt_sidecar.store.breaker import Breakers
from prompt_sidecar.store.server import Failure

NO_ANSWER: Final = "the store that replicas share gave no answer in time"
AWAY: Final = (
    "the shared store cannot be used (%s): %s; prompts are answered, and what they bring is written once it is back"
)
REFUSES: Final = "the shared store refuses commands (%s): %s; prompts are answered, but it lacks what they bring"
BACK: Final = "the shared store answers again"

_log = logging.getLogger(__name__)


class Commands:
    """Sends commands, and counts their outcomes and lost values. Thread-safe."""

    def __init__(self, breakers: Breakers, node: Callable[[str], str]) -> None:
        """`breakers` decide whether a server of the store is asked, `node` returns the server of a name."""
        self._breakers = breakers
        self._node = node
        self._lock = threading.Lock()
        self._replies: Counter[tuple[StoreCommand, StoreReply]] = Counter()
        self._lost: Counter[StoreLoss] = Counter()
        self._last_write = StoreReply.DONE
        self._faults: set[str] = set()
        """Servers that cannot be reached, and kinds of commands whose last one was refused."""

    @property
    def replies(self) -> dict[tuple[StoreCommand, StoreReply], int]:
        """Counts of commands by kind and outcome."""
        with self._lock:
            return dict(self._replies)

    @property
    def last_write(self) -> StoreReply:
        """The outcome of the last write that was sent."""
        return self._last_write

    @property
    def lost(self) -> dict[StoreLoss, int]:
        """Counts of values that should be in the store and are not, by cause."""
        with self._lock:
            return dict(self._lost)

    def ask(
        self, command: StoreCommand, name: str, ask: Callable[[], Any], error: type[Exception] = StoreUnavailable
    ) -> Any:
        """Send a command if the breaker of the server that has `name` allows it.

        Raises `error`.
        """
        node = self._node(name)
        breaker = self._breakers.of(node)
        asked = breaker.ask()
        try:
            if asked is None:
                raise Failure(StoreReply.SKIPPED)  # noqa: TRY301 - counted as the others
            with slots.waiting():
                reply = ask()
        except Failure as failure:
            self._count(command, failure.reply)
            if asked is not None:
                if failure.reply.is_away:
                    breaker.failed(asked)
                    if not breaker.closed:
                        self._found(node, AWAY, failure.reply.value, failure.words or "it did not answer in time")
                else:
                    breaker.succeeded()
                    self._found(command.value, REFUSES, failure.reply.value, failure.words or "its reply is damaged")
                    self._over(node)
            if error is Failure:
                raise
            raise StoreUnavailable(NO_ANSWER) from None
        self._count(command, StoreReply.OUTDATED if reply in (layout.GONE, layout.ENDED) else StoreReply.DONE)
        breaker.succeeded()
        if self._faults:
            self._over(node, command.value)
        return reply

    def _found(self, fault: str, line: str, *words: str) -> None:
        """Record a fault of the store; it is logged unless another one is known."""
        with self._lock:
            first = not self._faults
            self._faults.add(fault)
        if first:
            _log.warning(line, *words)

    def _over(self, *faults: str) -> None:
        """Remove these faults, and those of servers that answer or have left; the last removal is logged."""
        away = {*self._breakers.open()} - {""}  # no name: the server was not known
        with self._lock:
            before = bool(self._faults)
            self._faults = (self._faults - {*faults}) & {*away, *StoreCommand}
            over = before and not self._faults
        if over:
            _log.info(BACK)

    def lose(self, why: StoreLoss, times: int = 1) -> None:
        """Count values that should be in the store and are not."""
        with self._lock:
            self._lost[why] += times

    def _count(self, command: StoreCommand, reply: StoreReply) -> None:
        with self._lock:
            self._replies[command, reply] += 1
            if command is StoreCommand.WRITE and reply is not StoreReply.SKIPPED:
                self._last_write = reply
