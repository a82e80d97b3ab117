"""Determines the run of a request whose agent does not name one.

Theory. An agent that only sets a base URL names no run. It sends its whole history each time, so a *conversation* is
identified by its beginning: the user's first message and the model's first answer. The first call of a conversation has
no answer yet; its second has one, and adopts the first call's run. Within a session (many agents send a session id, and
some a subagent's id) that is enough; without one, the system prompt and the caller are compared too.

Two conversations with the same first message are distinguished by the model's first answer. Until there is one, they
share a run: the second of them that is sent with a different answer begins another run. A call without tools never
adopts the run of one with tools, or the reverse: agents request a title with the same words as the task.

The id of a run is a keyed hash of the conversation's beginning, so processes with the same key derive the same id. Only
a conversation that begins like an earlier one, and has no answer yet, gets a random id.
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
"""Memory of a conversation with a session id of usual length, measured with tracemalloc."""
_SESSION_CHARACTERS: Final = 1_024
"""Characters of a session id; some agents send JSON with three ids, of 200 characters."""
SESSION_HEADERS: Final = (
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
    """The beginning of a request; all but the caller and the session as digests."""

    caller: str
    session: str
    """The ids of session and subagent that the agent sends; empty if none."""
    system: bytes
    tools: bool
    """Whether the request has tools."""
    user: bytes
    """The user's first message."""
    answer: bytes
    """The model's first answer; empty if there is none yet."""
    compaction: bytes = b""
    """A provider's compaction at the beginning; empty if there is none."""


@dataclass(slots=True)
class Conversation:
    """One conversation. It is used by one request at a time; see `lock`."""

    run_id: str
    opening: Opening
    lock: threading.Lock = field(default_factory=threading.Lock)
    recall: RecallOffer | None = None
    """Whether the sidecar's tools are added to its requests; None until a request with tools decides it."""
    narrows: bool = True
    """Whether the provider is assumed to accept a tool choice that is narrowed to the agent's tools."""
    seen: bool = False
    """Whether a prompt of it was trimmed."""


_Words: TypeAlias = tuple[str, str, bytes]
"""Caller, session and the user's first message."""
_Key: TypeAlias = tuple[_Words, bool, bytes, bytes]
"""Identifies a conversation."""


class Conversations:
    """The conversations that this process has seen, at most `most`; the one idle for longest is forgotten. Thread-safe.

    Args:
        key: makes the ids of runs.
        most: conversations with a run that the agent names, and as many others.
        prefix: of the ids of derived runs.
        reached: called when the limit is reached.
    """

    def __init__(self, key: bytes, most: int, prefix: str, reached: Callable[[], None] = lambda: None) -> None:
        self._key = key
        self._most = most
        self._prefix = prefix
        self._reached = reached
        self._lock = threading.Lock()
        self._derived: OrderedDict[_Key, Conversation] = OrderedDict()
        self._alike: Counter[_Words] = Counter()
        """Number of conversations that begin with the same message."""
        self._named: OrderedDict[tuple[str, str], Conversation] = OrderedDict()
        self._keys: dict[tuple[str, str], _Key] = {}
        """Keys of derived conversations, by caller and run."""
        self._compacted: OrderedDict[tuple[str, bytes], tuple[str, str]] = OrderedDict()
        """Runs by caller and the compaction that they continue from."""

    def __len__(self) -> int:
        """Return the number of conversations."""
        return len(self._derived) + len(self._named)

    def named(self, caller: str, run_id: str, opening: Callable[[], Opening]) -> Conversation:
        """Return the conversation of a run that the agent names; `opening` is called if it is new."""
        key = caller, run_id
        with self._lock:
            found = self._named.get(key)
            if found is not None:
                self._named.move_to_end(key)
                return found
        made = Conversation(run_id, opening())  # it reads the request, so it is called without the lock
        with self._lock:
            found = self._named.setdefault(key, made)
            self._named.move_to_end(key)
            if len(self._named) > self._most:
                self._named.popitem(last=False)
                self._reached()
            return found

    def compacted(self, run: tuple[str, str], compaction: str) -> None:
        """Note that a provider has compacted a run's history, which may continue from the compaction alone."""
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
        """Return the estimated bytes kept for a run."""
        with self._lock:
            return CONVERSATION_BYTES if run in self._named or run in self._keys else 0

    def forget(self, run: tuple[str, str]) -> None:
        """Forget a run that has ended: its conversation begins another run, though the id may be the same."""
        with self._lock:
            self._named.pop(run, None)
            key = self._keys.get(run)
            if key is not None:
                self._remove(key)

    def forget_all(self, caller: str) -> None:
        """Forget all runs of a caller, including those of which no prompt was trimmed; they have ended."""
        with self._lock:
            names = [run for run in (*self._named, *self._keys) if run[0] == caller]
        for run in names:
            self.forget(run)

    def sweep(self, idle_since: float) -> None:
        """Do nothing: conversations live as long as their runs, which other calls may use."""


def _words(opening: Opening) -> _Words:
    return opening.caller, opening.session, opening.user


def _key(opening: Opening, answer: bytes) -> _Key:
    """Return a conversation's key. Within a session the agent may change its system prompt."""
    return _words(opening), opening.tools, b"" if opening.session else opening.system, answer


def opening_of(history: History, members: Members, caller: str, session: str) -> Opening:
    """Return the beginning of a request."""
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
    """Return the ids of session and subagent, of agents known to send them; empty if there are none.

    Claude Code sends `x-claude-code-session-id`, newer versions an agent id for subagents, and in `metadata.user_id` a
    part `_session_`; Codex sends `session_id` (or `session-id`), older ones `conversation_id`, and the same as
    `prompt_cache_key`. Longer ids are replaced by a digest, as every conversation keeps its ids.
    """
    parts = [value for name in SESSION_HEADERS if (value := headers.get(name, ""))]
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
