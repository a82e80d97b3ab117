"""Which run a request belongs to, where the agent does not say.

Theory. An agent that only sets a base URL names no run. It sends its whole history each time, so a *conversation* is
known by what it begins with: the first words of the user and the model's first answer to them. The first call of a
conversation has no answer yet; its second has, and adopts the first one's run. Within a session (many agents send an id
for theirs, and some an id for a subagent) that is enough; without one, the system prompt and the caller are looked at
too.

Two conversations that begin with the same words are distinguished by the model's first answer. Where both have none,
they are one run until then: the second to come back with an answer of its own begins another. A call without tools
never adopts one with tools, nor the other way round: a title is asked for with the same words as the task.

The id of a run is a keyed hash of what the conversation begins with, so a process with the same key gives the same.
Only where a conversation begins like an earlier one, and has no answer yet, is its id a random one.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from prompt_sidecar.answers.histories import History
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.prompt.members import Members, loads

_DIGITS: Final = 32
"""Hexadecimal digits of an id: 128 bits."""
CONVERSATION_BYTES: Final = 2_000
"""What a conversation takes with a session of usual length, as tracemalloc finds it."""
_SESSION_CHARACTERS: Final = 1_024
"""Of a session's name; some agents send JSON with three ids, of 200 characters."""
_SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "session_id",
    "session-id",
    "conversation_id",
    "thread-id",
    "x-session-id",
)


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
    compaction: bytes = b""
    """A provider's compaction that precedes it; empty: none does."""


@dataclass(slots=True)
class Conversation:
    """One conversation. What is done with it is done by one request at a time; see `lock`."""

    run_id: str
    opening: Opening
    lock: threading.Lock = field(default_factory=threading.Lock)
    recall: RecallOffer | None = None
    """Whether the sidecar's tools join its requests; None: no request with tools that decides it was seen."""
    narrows: bool = True
    """Whether the provider is thought to take a choice of tools that is narrowed to the agent's."""
    seen: bool = False
    """Whether a prompt of it was trimmed."""


_Words: TypeAlias = tuple[str, str, bytes]
"""Caller, session and the user's first words."""
_Key: TypeAlias = tuple[_Words, bool, bytes, bytes]
"""What tells conversations apart."""


class Conversations:
    """The conversations that this process has seen, at most `most`; the one idle for longest goes. Thread-safe.

    Args:
        key: for the ids of runs.
        most: conversations, of each kind: with a run that the agent names, and others.
        prefix: what ids of derived runs begin with.
        reached: called when there are more.
    """

    def __init__(self, key: bytes, most: int, prefix: str, reached: Callable[[], None] = lambda: None) -> None:
        self._key = key
        self._most = most
        self._prefix = prefix
        self._reached = reached
        self._lock = threading.Lock()
        self._derived: OrderedDict[_Key, Conversation] = OrderedDict()
        self._alike: Counter[_Words] = Counter()
        """Number of conversations that begin with the same words."""
        self._named: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._keys: dict[tuple[str, str], _Key] = {}
        """Of derived conversations, by caller and run."""
        self._compacted: OrderedDict[tuple[str, bytes], tuple[str, str]] = OrderedDict()
        """Runs by caller and the compaction that they go on from."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._derived) + len(self._named)

    def named(self, caller: str, run_id: str, opening: Callable[[], Opening]) -> Conversation:
        """Return the conversation of a run that the agent names; `opening` is asked for when it is new."""
        key = caller, run_id
        with self._lock:
            found = self._named.get(key)
            if found is not None:
                self._named.move_to_end(key)
                return found
        made = Conversation(run_id, opening())  # reads the request, so without the lock
        with self._lock:
            found = self._named.setdefault(key, made)
            self._named.move_to_end(key)
            if len(self._named) > self._most:
                self._named.popitem(last=False)
                self._reached()
            return found

    def compacted(self, run: tuple[str, str], compaction: str) -> None:
        """A provider has compacted the history of a run, which may go on from that alone."""
        caller = run[0]
        with self._lock:
            self._compacted[caller, _digest(compaction)] = run
            self._compacted.move_to_end((caller, _digest(compaction)))
            if len(self._compacted) > self._most:
                self._compacted.popitem(last=False)

    def of(self, opening: Opening, *, alike: bool = False) -> Conversation:
        """Return the conversation that a request continues, or a new one.

        `alike`: whether the request may lack the tools and the system prompt of the conversation.
        """
        key = _key(opening, opening.answer)
        with self._lock:
            known = self._keys.get(self._compacted.get((opening.caller, opening.compaction), ("", "")))
            if opening.compaction and known is not None:
                self._derived.move_to_end(known)
                return self._derived[known]
            found = self._derived.get(key)
            if found is None and alike and self._alike[_words(opening)]:
                keys = [each for each in self._derived if (each[0], each[3]) == (key[0], key[3])]
                if len(keys) == 1:
                    self._derived.move_to_end(keys[0])
                    return self._derived[keys[0]]
            if found is None and opening.answer:
                found = self._derived.pop(_key(opening, b""), None)
                if found is not None:
                    found.opening = opening
                    self._derived[key] = found
                    self._keys[opening.caller, found.run_id] = key
            if found is None:
                found = self._derived[key] = Conversation(self._run_id(opening), opening)
                self._keys[opening.caller, found.run_id] = key
                self._alike[_words(opening)] += 1
                self._forget()
            self._derived.move_to_end(key)
            return found

    def _run_id(self, opening: Opening) -> str:
        parts = [opening.caller.encode(), opening.session.encode("utf-8", "surrogatepass"), opening.user]
        parts.append(b"" if opening.session else opening.system)
        parts.append(b"tools" if opening.tools else b"")
        if self._alike[_words(opening)]:
            parts += [opening.system, opening.answer or secrets.token_bytes(16)]
        text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return self._prefix + hmac.digest(self._key, text, "sha256").hex()[:_DIGITS]

    def _forget(self) -> None:
        while len(self._derived) > self._most:
            self._remove(next(iter(self._derived)))
            self._reached()

    def _remove(self, key: _Key) -> None:
        """Forget a derived conversation; the lock is held."""
        gone, words = self._derived.pop(key), key[0]
        if self._keys.get((words[0], gone.run_id)) == key:
            del self._keys[words[0], gone.run_id]
        self._alike[words] -= 1
        if not self._alike[words]:
            del self._alike[words]

    # -- the end of runs, as a `DoorMemory` ----------------------------------------------------------------------------

    def kept_bytes(self, run: tuple[str, str]) -> int:
        """What is kept of a run; bytes, estimated."""
        with self._lock:
            return CONVERSATION_BYTES if run in self._named or run in self._keys else 0

    def forget(self, run: tuple[str, str]) -> None:
        """The run is over: what comes next of its conversation begins another, though its id may be the same."""
        with self._lock:
            self._named.pop(run, None)
            key = self._keys.get(run)
            if key is not None:
                self._remove(key)

    def forget_all(self, caller: str) -> None:
        """All runs of a caller are over, those too of which no prompt was trimmed."""
        with self._lock:
            names = [run for run in (*self._named, *self._keys) if run[0] == caller]
        for run in names:
            self.forget(run)

    def sweep(self, idle_since: float) -> None:
        """Conversations stay as long as their runs, which may be used by other calls; there is nothing to do."""


def _words(opening: Opening) -> _Words:
    return opening.caller, opening.session, opening.user


def _key(opening: Opening, answer: bytes) -> _Key:
    """A session's agent may change its system prompt."""
    return _words(opening), opening.tools, b"" if opening.session else opening.system, answer


def opening_of(history: History, members: Members, caller: str, session: str) -> Opening:
    """Return what a request begins with."""
    user, answer, system = "", "", blake2b(digest_size=16)
    compaction = ""
    for name in history.system:
        system.update(members.raw(name))
    for raw in history.entries(members):
        entry = loads(raw)
        speaker = history.speaker(entry)
        if not answer and (found := history.api.compaction(entry)):
            compaction = found
        if speaker == "user" and not user:
            user = history.gist(entry) or ""
        elif speaker == "model" and (gist := history.gist(entry)):
            answer = gist
            break
        elif speaker == "other" and not user:
            system.update(raw)
    return Opening(
        caller=caller,
        session=session,
        system=system.digest(),
        tools=bool(history.agent_tools(members)),
        user=_digest(user),
        answer=_digest(answer) if answer else b"",
        compaction=_digest(compaction) if compaction else b"",
    )


def session_of(headers: Mapping[str, str], members: Members) -> str:
    """Return the session and agent that a known agent names, of those that send one; empty: none.

    Claude Code sends `x-claude-code-session-id`, newer versions an agent id for subagents, and in `metadata.user_id` a
    part `_session_`; Codex sends `session_id` (or `session-id`), older ones `conversation_id`, and the same as
    `prompt_cache_key`. Of what is longer than any of these a digest is returned, as all conversations keep theirs.
    """
    parts = [value for name in _SESSION_HEADERS if (value := headers.get(name, ""))]
    if not parts:
        metadata = members.get("metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
        if isinstance(user, str) and "session" in user:
            parts.append(user)
        key = members.get("prompt_cache_key")
        if isinstance(key, str) and key:
            parts.append(key)
    session = "\x1f".join(parts)
    return session if len(session) <= _SESSION_CHARACTERS else _digest(session).hex()


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
