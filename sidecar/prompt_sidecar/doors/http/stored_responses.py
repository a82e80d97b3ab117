"""Responses that the provider stores and the agent goes on from by their id.

The prompt is at the provider then, and cannot be trimmed. Recall works all the same: the sidecar's tools join the
request as they did the one before, and where the agent was given only its own calls of a turn, the answers to the
sidecar's are put before its results. Where one answer was made of several responses, the agent's id stands for the
last of them. The sidecar's answers quote originals, so those of a run go with these: when it is over, and when they
were not used for the time to live.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from prompt_sidecar.calls.conversations import Conversation

_FRAME: Final = 400
"""Bytes of an entry's own objects."""
SWEEP_RESPONSES: Final = 256
"""Idle responses that one slice of housekeeping forgets."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One response that an agent may go on from."""

    id: str
    """The provider's id of it."""
    conversation: Conversation
    answers: tuple[Any, ...] = ()
    """Items that answer the sidecar's calls in it."""

    @property
    def size(self) -> int:
        """What it takes, estimated."""
        return _FRAME + len(self.id) + len(orjson.dumps(self.answers))


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: Stored
    size: int
    used: float


class StoredResponses:
    """The newest responses of all callers: at most `most`, of `most_bytes` in all. A `DoorMemory`. Thread-safe.

    `clock` gives seconds by which times to live are counted.
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        reached: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._reached = reached
        self._clock = clock
        self.life = math.inf
        """Seconds for which one that is not used is kept."""
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        """By caller and the id that the agent was shown; the one used last at the end."""
        self._of_runs: dict[tuple[str, str], dict[str, int]] = {}
        """Of each run, by its caller and id: the ids that the agent was shown, with their bytes."""
        self._bytes = 0

    def keep(self, caller: str, shown: str, stored: Stored) -> None:
        """Keep a response under the id that the agent was shown. A provider may choose an id of any length."""
        size = len(shown) + stored.size
        with self._lock:
            if (caller, shown) in self._known:
                self._remove((caller, shown))
            self._known[caller, shown] = _Entry(stored, size, self._clock())
            self._of_runs.setdefault((caller, stored.conversation.run_id), {})[shown] = size
            self._bytes += size
            while len(self._known) > self._most or self._bytes > self._most_bytes:
                self._reached("http.hidden_bytes" if self._bytes > self._most_bytes else "http.max_conversations")
                self._remove(next(iter(self._known)))

    def find(self, caller: str, shown: str) -> Stored | None:
        """Return the response with the id that the agent was shown; None: it is not known."""
        now = self._clock()
        with self._lock:
            found = self._known.get((caller, shown))
            if found is None:
                return None
            if now - found.used > self.life:
                self._remove((caller, shown))
                return None
            self._known[caller, shown] = replace(found, used=now)
            self._known.move_to_end((caller, shown))
            return found.stored

    def _remove(self, key: tuple[str, str]) -> None:
        """Forget a response; the lock is held."""
        gone = self._known.pop(key)
        run = key[0], gone.stored.conversation.run_id
        self._bytes -= gone.size
        del self._of_runs[run][key[1]]
        if not self._of_runs[run]:
            del self._of_runs[run]

    # -- the end of runs -----------------------------------------------------------------------------------------------

    def kept_bytes(self, run: tuple[str, str]) -> int:
        """What is kept of a run; bytes, estimated."""
        with self._lock:
            return sum(self._of_runs.get(run, {}).values())

    def forget(self, run: tuple[str, str]) -> None:
        """The run is over: no answer of its is sent to a provider again."""
        with self._lock:
            for shown in list(self._of_runs.get(run, ())):
                self._remove((run[0], shown))

    def forget_all(self, caller: str) -> None:
        """All runs of a caller are over."""
        with self._lock:
            runs = [run for run in self._of_runs if run[0] == caller]
        for run in runs:
            self.forget(run)

    def sweep(self, idle_since: float) -> None:
        """Forget some responses that were not used since then."""
        with self._lock:
            for _ in range(SWEEP_RESPONSES):
                key, oldest = next(iter(self._known.items()), (None, None))
                if key is None or oldest is None or oldest.used >= idle_since:
                    return
                self._remove(key)
