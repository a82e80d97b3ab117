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
from typing import Any

from prompt_sidecar.serving.conversations import Conversation


@dataclass(frozen=True, slots=True)
class Stored:
    """One response that an agent may go on from."""

    id: str
    """The provider's id of it."""
    conversation: Conversation
    answers: tuple[Any, ...] = ()
    """Items that answer the sidecar's calls in it."""


class StoredResponses:
    """The newest responses of each caller, at most `most` in all. Thread-safe."""

    def __init__(self, most: int, reached: Callable[[str], None] = lambda _: None) -> None:
        self._most = most
        self._reached = reached
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Stored] = OrderedDict()

    def keep(self, caller: str, shown: str, stored: Stored) -> None:
        """Keep a response under the id that the agent was shown."""
        with self._lock:
            self._known[caller, shown] = stored
            if len(self._known) > self._most:
                self._known.popitem(last=False)
                self._reached("http.max_conversations")

    def find(self, caller: str, shown: str) -> Stored | None:
        """Return the response with the id that the agent was shown; None: it is not known."""
        with self._lock:
            return self._known.get((caller, shown))
