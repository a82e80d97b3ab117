"""Responses stored by the provider, which agents continue from by their id.

The prompt is then stored at the provider, and cannot be trimmed. Recall still works: the sidecar's tools are added to
the request as to the one before, and if the agent got only its own calls of a turn, the results of the sidecar's calls
are put before the agent's results. If one answer was made of several responses, the agent's id names the last of them.
The sidecar's results quote originals, so they are forgotten when the originals are: when the run has ended, and when
they were not used for the time to live.

For a response on a WebSocket the *chain* is kept too: all input of the agent and all answers up to it. So a request
that continues from it is trimmed as if the agent had sent the whole history again. Chains share their common beginning.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from prompt_sidecar.calls.conversations import Conversation

_FRAME: Final = 400
"""Memory of an entry's own objects, in bytes."""
SWEEP_RESPONSES: Final = 256
"""Idle responses that one slice of housekeeping forgets."""
CHAIN_BOUND: Final = "http.chain_bytes"
_ENTRY: Final = 60
"""Memory of an entry's own object and of the reference to it, in bytes."""


@dataclass(slots=True, eq=False)
class Link:
    """One request and the response to it, linked to those before; its content does not change."""

    before: Link | None
    entries: tuple[bytes, ...]
    """The agent's input, and the answer that it got, in the form in which it would send that back."""
    run: tuple[str, str] = ("", "")
    """Caller and id of the run."""
    holders: int = 0
    """Number of links and responses that continue from it."""

    size: int = field(init=False)
    """Estimated memory, in bytes."""

    def __post_init__(self) -> None:
        self.size = _FRAME + sum(map(len, self.entries)) + _ENTRY * len(self.entries)


def history(link: Link | None) -> list[bytes]:
    """Return all entries of a chain, in order."""
    links = []
    while link is not None:
        links.append(link.entries)
        link = link.before
    return [entry for entries in reversed(links) for entry in entries]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response that an agent may continue from."""

    id: str
    """The provider's id of the response."""
    conversation: Conversation
    answers: tuple[Any, ...] = ()
    """Items that answer the sidecar's calls in it."""
    chain: Link | None = None
    """The history up to and including it; None if not known."""

    @property
    def size(self) -> int:
        """Estimated memory without its chain, in bytes."""
        return _FRAME + len(self.id) + len(orjson.dumps(self.answers))


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: StoredResponse
    size: int
    used: float


class StoredResponses:
    """The newest responses of all callers: at most `most`, with `most_bytes` in total. A `DoorMemory`. Thread-safe.

    `clock` returns seconds and measures times to live; chains take at most `chain_bytes`.
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        reached: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        chain_bytes: int = 0,
    ) -> None:
        self._chain_most = chain_bytes
        self._chain_bytes = 0
        self._chains_of_runs: Counter[tuple[str, str]] = Counter()
        self._most = most
        self._most_bytes = most_bytes
        self._reached = reached
        self._clock = clock
        self.life = math.inf
        """Seconds for which an unused response is kept."""
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        """Responses by caller and the id that the agent got, the least recently used first."""
        self._of_runs: dict[tuple[str, str], dict[str, int]] = {}
        """By caller and id of a run: the ids that the agent got, with their bytes."""
        self._bytes = 0

    def keep(self, caller: str, shown: str, stored: StoredResponse) -> None:
        """Keep a response under the id that the agent got. A provider may choose an id of any length."""
        size = len(shown) + stored.size
        with self._lock:
            if (caller, shown) in self._known:
                self._remove((caller, shown))
            self._known[caller, shown] = _Entry(stored, size, self._clock())
            self._of_runs.setdefault((caller, stored.conversation.run_id), {})[shown] = size
            self._bytes += size
            self._hold(stored.chain)
            while len(self._known) > self._most or self._bytes > self._most_bytes:
                self._reached("http.hidden_bytes" if self._bytes > self._most_bytes else "http.max_conversations")
                self._remove(next(iter(self._known)))
            while self._chain_bytes > self._chain_most:
                self._reached(CHAIN_BOUND)
                self._unchain(next(key for key, each in self._known.items() if each.stored.chain is not None))

    def bytes_behind(self, caller: str, shown: str) -> int:
        """Return the bytes of the history that a request continues from, or 0 if it is not known."""
        with self._lock:
            found = self._known.get((caller, shown))
            link = None if found is None else found.stored.chain
        size = 0
        while link is not None:
            size += link.size
            link = link.before
        return size

    def find(self, caller: str, shown: str) -> StoredResponse | None:
        """Return the response with the id that the agent got, or None if it is not known."""
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
        self._let_go(gone.stored.chain)
        run = key[0], gone.stored.conversation.run_id
        self._bytes -= gone.size
        del self._of_runs[run][key[1]]
        if not self._of_runs[run]:
            del self._of_runs[run]

    def _hold(self, link: Link | None) -> None:
        """Count the links of a chain that are not counted yet; the lock is held."""
        while link is not None:
            link.holders += 1
            if link.holders > 1:
                return
            self._weigh(link, link.size)
            link = link.before

    def _let_go(self, link: Link | None) -> None:
        """Release a chain, and stop counting links that nothing refers to any more; the lock is held."""
        while link is not None:
            link.holders -= 1
            if link.holders:
                return
            self._weigh(link, -link.size)
            link = link.before

    def _unchain(self, key: tuple[str, str]) -> None:
        """Forget the chain of a response; the lock is held."""
        entry = self._known[key]
        self._let_go(entry.stored.chain)
        self._known[key] = replace(entry, stored=replace(entry.stored, chain=None))

    def _weigh(self, link: Link, size: int) -> None:
        self._chain_bytes += size
        self._chains_of_runs[link.run] += size
        if not self._chains_of_runs[link.run]:
            del self._chains_of_runs[link.run]

    # -- the end of runs -----------------------------------------------------------------------------------------------

    def kept_bytes(self, run: tuple[str, str]) -> int:
        """Return the estimated bytes kept for a run."""
        with self._lock:
            return sum(self._of_runs.get(run, {}).values()) + self._chains_of_runs[run]

    def forget(self, run: tuple[str, str]) -> None:
        """Forget a run that has ended: none of its results are sent to a provider again."""
        with self._lock:
            for shown in list(self._of_runs.get(run, ())):
                self._remove((run[0], shown))

    def forget_all(self, caller: str) -> None:
        """Forget all runs of a caller; they have ended."""
        with self._lock:
            runs = [run for run in self._of_runs if run[0] == caller]
        for run in runs:
            self.forget(run)

    def sweep(self, idle_since: float) -> None:
        """Forget some responses that were last used before that time."""
        with self._lock:
            for _ in range(SWEEP_RESPONSES):
                key, oldest = next(iter(self._known.items()), (None, None))
                if key is None or oldest is None or oldest.used >= idle_since:
                    return
                self._remove(key)
