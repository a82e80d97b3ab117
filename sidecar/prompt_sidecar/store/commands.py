"""Commands to the store: counted, and not sent while it does not answer."""

from __future__ import annotations

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


class Commands:
    """Sends commands, and counts what comes of them and what is lost. Thread-safe."""

    def __init__(self, breakers: Breakers, node: Callable[[str], str]) -> None:
        """`breakers` say when a server of the store is not asked, `node` which server has a name."""
        self._breakers = breakers
        self._node = node
        self._lock = threading.Lock()
        self._replies: Counter[tuple[StoreCommand, StoreReply]] = Counter()
        self._lost: Counter[StoreLoss] = Counter()

    @property
    def replies(self) -> dict[tuple[StoreCommand, StoreReply], int]:
        """How many commands came to what."""
        with self._lock:
            return dict(self._replies)

    @property
    def lost(self) -> dict[StoreLoss, int]:
        """How many values are not in the store though they should be, by the cause."""
        with self._lock:
            return dict(self._lost)

    def ask(
        self, command: StoreCommand, name: str, ask: Callable[[], Any], error: type[Exception] = StoreUnavailable
    ) -> Any:
        """Ask the store if the breaker of the server that has `name` allows.

        Raises the error, or Failure where that is asked for.
        """
        breaker = self._breakers.of(self._node(name))
        asked = breaker.ask()
        try:
            if asked is None:
                raise Failure(StoreReply.SKIPPED)  # noqa: TRY301 - counted as the others
            with slots.waiting():
                reply = ask()
        except Failure as failure:
            self._count(command, failure.reply)
            if asked is not None:
                if failure.reply is StoreReply.UNREACHABLE:
                    breaker.failed(asked)
                else:
                    breaker.succeeded()
            if error is Failure:
                raise
            raise StoreUnavailable(NO_ANSWER) from None
        self._count(command, StoreReply.OUTDATED if reply in (layout.GONE, layout.ENDED) else StoreReply.DONE)
        breaker.succeeded()
        return reply

    def lose(self, why: StoreLoss, times: int = 1) -> None:
        """Count values that are not in the store though they should be."""
        with self._lock:
            self._lost[why] += times

    def _count(self, command: StoreCommand, reply: StoreReply) -> None:
        with self._lock:
            self._replies[command, reply] += 1
