"""Responses that the provider stores and the agent goes on from by their id.

The prompt is at the provider then, and cannot be trimmed. Recall works all the same: the sidecar's tools join the
request as they did the one before, and where the agent was given only its own calls of a turn, the answers to the
sidecar's are put before its results. Where one answer was made of several responses, the agent's id stands for the
last of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from prompt_sidecar.serving.conversations import Conversation

_FRAME: Final = 400
"""Bytes of an entry's own objects."""


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


class StoredResponses:
    """The newest responses of all callers: at most `most`, of `most_bytes` in all. Thread-safe."""

    def __init__(self, most: int, most_bytes: int, reached: Callable[[str], None] = lambda _: None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._reached = reached
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], tuple[Stored, int]] = OrderedDict()
        """With the bytes of each."""
        self._bytes = 0

    def keep(self, caller: str, shown: str, stored: Stored) -> None:
        """Keep a response under the id that the agent was shown. A provider may choose an id of any length."""
        size = len(shown) + stored.size
        with self._lock:
            _, before = self._known.pop((caller, shown), (None, 0))
            self._known[caller, shown] = stored, size
            self._bytes += size - before
            while len(self._known) > self._most or self._bytes > self._most_bytes:
                self._reached("http.hidden_bytes" if self._bytes > self._most_bytes else "http.max_conversations")
                _, (_, gone) = self._known.popitem(last=False)
                self._bytes -= gone

    def find(self, caller: str, shown: str) -> Stored | None:
        """Return the response with the id that the agent was shown; None: it is not known."""
        with self._lock:
            return self._known.get((caller, shown), (None, 0))[0]
