"""Which run a request belongs to, where the agent does not say.

Theory. An agent that only sets a base URL names no run. It sends its whole history each time, so a *conversation* is
known by what it begins with: the first words of the user and the model's first answer to them. The first call of a
conversation has no answer yet; its second has, and adopts the first one's run. Within a session (many agents send an id
for theirs, and some an id for a subagent) that is enough; without one, the system prompt and the caller are looked at
too.

Two conversations that begin with the same words are told apart by the model's first answer. Where both have none yet,
they are one run until then: the second to come back with an answer of its own begins another. A call without tools
never adopts one with tools, nor the other way round: a title is asked for with the same words as the task.

The id of a run is a keyed hash of what the conversation begins with, so a process with the same key gives the same.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_DIGITS: Final = 32
"""Hexadecimal digits of an id: 128 bits."""
PREFIX: Final = "http-"
"""What ids of runs that the door derives begin with."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a request begins with; all but the caller and the session as digests."""

    caller: str
    session: str
    """The session and agent that the agent names; empty: none."""
    system: bytes
    tools: bool
    """Whether it has any."""
    user: bytes
    """The user's first words."""
    answer: bytes
    """The model's first answer; empty: there is none yet."""


@dataclass(slots=True)
class Conversation:
    """One conversation. What is done with it is done by one request at a time; see `lock`."""

    run_id: str
    opening: Opening
    lock: threading.Lock = field(default_factory=threading.Lock)
    offered: bool | None = None
    """Whether the sidecar's tools join its requests; None: no request with tools was seen."""
    seen: bool = False
    """Whether a prompt of it was trimmed."""


class Conversations:
    """The conversations that this process has seen, at most `most`. Thread-safe."""

    def __init__(self, key: bytes, most: int, reached: Callable[[str], None] = lambda _: None) -> None:
        self._key = key
        self._most = most
        self._reached = reached
        self._lock = threading.Lock()
        self._by_user: OrderedDict[tuple[str, str, bytes], list[Conversation]] = OrderedDict()
        """Conversations that begin with the same words, the newest last."""
        self._named: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._count = 0

    def named(self, opening: Opening, run_id: str) -> Conversation:
        """Return the conversation of a run that the agent names."""
        with self._lock:
            key = opening.caller, run_id
            found = self._named.get(key)
            if found is None:
                found = self._named[key] = Conversation(run_id, opening)
                if len(self._named) > self._most:
                    self._named.popitem(last=False)
                    self._reached("http.max_conversations")
            self._named.move_to_end(key)
            return found

    def of(self, opening: Opening) -> Conversation:
        """Return the conversation that a request continues, or a new one."""
        key = opening.caller, opening.session, opening.user
        with self._lock:
            same = self._by_user.setdefault(key, [])
            self._by_user.move_to_end(key)
            found = self._continued(opening, same)
            if found is None:
                found = Conversation(self._run_id(opening, taken=bool(same)), opening)
                same.append(found)
                self._count += 1
                self._forget()
            elif opening.answer and not found.opening.answer:
                found.opening = opening
            same.remove(found)
            same.append(found)
            return found

    def _continued(self, opening: Opening, same: list[Conversation]) -> Conversation | None:
        for each in reversed(same):
            if each.opening.answer == opening.answer and self._alike(each.opening, opening):
                return each
        if not opening.answer:
            return None
        waiting = [each for each in same if not each.opening.answer and self._alike(each.opening, opening)]
        exact = [each for each in waiting if each.opening.system == opening.system]
        found = exact or waiting
        return found[-1] if found else None

    @staticmethod
    def _alike(one: Opening, other: Opening) -> bool:
        """Whether two requests may be of one conversation; a session's agent may change its system prompt."""
        if one.session:
            return one.tools == other.tools
        return one.system == other.system and one.tools == other.tools

    def _run_id(self, opening: Opening, *, taken: bool) -> str:
        parts = [opening.caller, opening.session, opening.user.hex()]
        if not opening.session:
            parts.append(opening.system.hex())
        if not opening.tools:
            parts.append("without tools")
        if taken:
            parts += [opening.system.hex(), opening.answer.hex() or f"again {self._count}"]
        return PREFIX + hmac.digest(self._key, "\x1f".join(parts).encode(), "sha256").hex()[:_DIGITS]

    def _forget(self) -> None:
        while self._count > self._most and len(self._by_user) > 1:
            _, gone = self._by_user.popitem(last=False)
            self._count -= len(gone)
            self._reached("http.max_conversations")
