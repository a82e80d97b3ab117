"""Messages in the form that headroom's users expect: as many as they sent, with hashes that fetch originals.

Theory. Those who call `/v1/compress` replace each message they sent by the one returned at the same index, so none may
be added or removed. The trimmed prompt is returned as edits of their messages: a dropped message is clipped where it is
(`TrimCall.in_place`), and no text of the sidecar's own is added. The first `frozen_message_count` messages, which their
provider has cached, are returned as sent, whatever trimming decided about them; only masks are put into them.

Ids of originals become *hashes*, which such callers look for: the id's characters in hexadecimal, and four digits that
identify the run, since a retrieval request names no run. They replace ids only in this run's labels. When a caller
sends hashes back, they are replaced by ids, so that the run recognises its labels.

headroom-ai 0.42 (`config.mode` and `config.frozen_message_count` of /v1/compress, `ccr_hashes`, /v1/retrieve), and the
guardrail `headroom` of LiteLLM 1.108, which refuses another number of messages with 502 (read in November 2026).
"""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.trim_calls import EditOperation, TrimAnswer
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.members import loads
from prompt_sidecar.providers.untyped import member, objects, string
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.ids import ID_CHARACTERS

WITH_HASHES: Final = "ccr"
_MODES: Final = (None, WITH_HASHES, "lossy_inline", "lossless_then_lossy")
"""Values of `config.mode`; all but the first name return messages without hashes."""
_RUN_DIGITS: Final = 4
"""Hexadecimal digits of a hash that identify the run. Runs of a caller with the same digits are tried one after
another: an id belongs to one run only."""
_SAME_DIGITS: Final = 8
"""Remembered runs with the same digits. Of 16,384 runs two share digits in four of five cases, and three seldom."""
_RUN_BYTES: Final = 400
"""Memory for one remembered run, measured with tracemalloc."""
HASH: Final = re.compile(rf"[0-9a-f]{{{2 * ID_CHARACTERS + _RUN_DIGITS}}}")
_LABELLED: Final = re.compile(rf"\bid=([a-z0-9]{{{ID_CHARACTERS}}})\b".encode())
_HASHED: Final = re.compile(rf"\bhash=([0-9a-f]{{{2 * ID_CHARACTERS}}})([0-9a-f]{{{_RUN_DIGITS}}})\b".encode())
_POINTER: Final = re.compile(r"/messages/([0-9]+)(/.*)?")

Run = tuple[str, str]
"""Caller and run id."""


@dataclass(frozen=True, slots=True)
class CompressConfig:
    """What the member `config` of a request asks for."""

    hashes: bool = False
    frozen: int = 0
    """Messages at the beginning that are returned as they were sent."""

    @classmethod
    def of(cls, config: Any) -> CompressConfig:
        """Read the member. Raises InvalidRequest."""
        if config is None:
            return cls()
        mode, frozen = member(config, "mode"), member(config, "frozen_message_count")
        if not isinstance(config, dict) or mode not in _MODES:
            message = "config must be an object, and config.mode in it one of ccr, lossy_inline and lossless_then_lossy"
            raise InvalidRequest(message, field="config.mode")
        if isinstance(frozen, bool) or not (frozen is None or (isinstance(frozen, int) and frozen >= 0)):
            raise InvalidRequest(
                "config.frozen_message_count must be a number of messages, from 0", field="config.frozen_message_count"
            )
        return cls(mode == WITH_HASHES, frozen or 0)


@dataclass(frozen=True, slots=True)
class CompressedMessages:
    """Messages to return in place of those that were sent."""

    messages: list[bytes]
    undone: int = 0
    """Bytes that these messages have in addition to what the run counts: from messages that are frozen, or clipped
    instead of dropped."""


@dataclass(frozen=True, slots=True)
class PairedMessages:
    """Messages with calls added for results that had none."""

    messages: list[bytes]
    places: dict[int, int]
    """Index in the paired messages to index in the messages that were sent."""

    @property
    def added(self) -> int:
        """Bytes of the calls that were added."""
        return sum(len(raw) for index, raw in enumerate(self.messages) if index not in self.places)


def paired(sent: Sequence[bytes]) -> PairedMessages:
    """Put a call before each result of chat completions that has none.

    LiteLLM's guardrail does not send the model's messages. Without calls a prompt would begin with results, which no
    cut changes.
    """
    messages: list[bytes] = []
    places: dict[int, int] = {}
    waiting: Counter[Any] = Counter()
    for place, raw in enumerate(sent):
        entry = loads(raw) if b'"tool' in raw else None
        waiting.update(string(call.get("id")) for call in objects(member(entry, "tool_calls")))
        if member(entry, "role") == "tool":
            call_id = string(member(entry, "tool_call_id"))
            if not waiting[call_id]:
                call = {"id": call_id, "type": "function", "function": {"name": "tool", "arguments": "{}"}}
                messages.append(orjson.dumps({"role": "assistant", "content": None, "tool_calls": [call]}))
                waiting[call_id] += 1
            waiting[call_id] -= 1
        places[len(messages)] = place
        messages.append(raw)
    return PairedMessages(messages, places)


def in_place(
    sent: Sequence[bytes], given: PairedMessages, answer: TrimAnswer, form: Format, frozen: int
) -> CompressedMessages:
    """Apply an answer's edits to the messages that were sent, one for one.

    Args:
        sent: the messages, each as JSON; frozen ones are already masked.
        given: the same messages with calls added, as the trimmed body held them in `messages`.
        answer: the answer for that body.
        form: the messages' format.
        frozen: how many messages at the beginning stay unchanged.
    """
    made, undone = list(sent), 0
    first = _leading(sent) if form.leading_system else 0
    dropped = {trim.message_index + first for trim in answer.trimmed.trims if trim.action is Action.DROPPED}
    for edit in answer.prompt.edits:
        found = _POINTER.fullmatch(edit.pointer)
        if found is None or edit.operation is not EditOperation.REPLACE:
            continue
        index, gone = given.places.get(int(found[1]), -1), int(found[1]) in dropped
        if index < frozen:
            undone += len(made[index]) - (0 if gone else len(edit.value)) if index >= 0 else 0
            continue
        made[index] = edit.value if not found[2] else _put(made[index], found[2], edit.value)
        undone += len(edit.value) if gone else 0
    return CompressedMessages(made, max(undone, 0))


def _leading(sent: Sequence[bytes]) -> int:
    """Return how many system messages come first; they are not records of the history."""
    at = 0
    while at < len(sent) and member(loads(sent[at]), "role") in {"system", "developer"}:
        at += 1
    return at


def _put(raw: bytes, pointer: str, value: bytes) -> bytes:
    """Return a message with another value at a JSON pointer."""
    whole = loads(raw)
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    holder = whole
    for part in path:
        holder = holder[int(part) if isinstance(holder, list) else part]
    holder[int(last) if isinstance(holder, list) else last] = loads(value)
    return orjson.dumps(whole)


# -- hashes --------------------------------------------------------------------------------------------------------


class Hashes:
    """The runs whose hashes were returned, so that a hash is enough to fetch an original: a `DoorMemory`. Thread-safe.

    Args:
        key: makes the digits that identify a run.
        most: runs to remember. Beyond it the least recently used one is forgotten, and its originals are not found.
    """

    def __init__(self, key: bytes, most: int) -> None:
        self._key = key
        self._most = most
        self._lock = threading.Lock()
        self._runs: OrderedDict[Run, str] = OrderedDict()
        """Digits by run."""
        self._by_digits: dict[tuple[str, str], list[str]] = {}
        """Run ids by caller and digits."""

    def of(self, run: Run) -> RunHashes:
        """Return the hashes of a run, and remember the run."""
        digits = self._digits(run)
        with self._lock:
            if run not in self._runs:
                self._runs[run] = digits
                alike = self._by_digits.setdefault((run[0], digits), [])
                alike.append(run[1])
                if len(alike) > _SAME_DIGITS:
                    self._remove((run[0], alike[0]))
            self._runs.move_to_end(run)
            if len(self._runs) > self._most:
                self._remove(next(iter(self._runs)))
        return RunHashes(digits)

    def find(self, caller: str, text: str) -> tuple[str, list[str]]:
        """Return the stash id in a hash and the ids of the runs it may belong to; empty if it is not a hash."""
        if HASH.fullmatch(text) is None:
            return "", []
        stash_id = bytes.fromhex(text[: 2 * ID_CHARACTERS]).decode("ascii", "replace")
        with self._lock:
            return stash_id, list(self._by_digits.get((caller, text[2 * ID_CHARACTERS :]), ()))

    def _digits(self, run: Run) -> str:
        name = "\x1f".join(run).encode("utf-8", "surrogatepass")
        return blake2b(name, key=self._key[:64], digest_size=_RUN_DIGITS // 2, person=b"hashes").hexdigest()

    def _remove(self, run: Run) -> None:
        """Forget a run; the lock is held."""
        digits = self._runs.pop(run, None)
        if digits is not None:
            alike = self._by_digits[run[0], digits]
            alike.remove(run[1])
            if not alike:
                del self._by_digits[run[0], digits]

    def kept_bytes(self, run: Run) -> int:
        """Return the estimated bytes kept for a run."""
        with self._lock:
            return _RUN_BYTES if run in self._runs else 0

    def forget(self, run: Run) -> None:
        """Forget a run that has ended."""
        with self._lock:
            self._remove(run)

    def forget_all(self, caller: str) -> None:
        """Forget all runs of a caller; they have ended."""
        with self._lock:
            for run in [run for run in self._runs if run[0] == caller]:
                self._remove(run)

    def sweep(self, idle_since: float) -> None:
        """Do nothing: hashes live as long as their runs."""


class RunHashes:
    """The hashes of one run in the messages of one request."""

    def __init__(self, digits: str) -> None:
        self._digits = digits.encode()
        self._sent_back: set[bytes] = set()
        """Ids whose hashes the caller has sent."""
        self._given: dict[str, None] = {}

    @property
    def given(self) -> Sequence[str]:
        """Return the hashes in the messages that were written, in order and without duplicates."""
        return list(self._given)

    def read(self, messages: bytes) -> bytes:
        """Return messages in which this run's hashes are replaced by ids."""
        return _HASHED.sub(self._as_id, messages) if b"hash=" in messages else messages

    def write(self, messages: bytes, ids: Collection[str]) -> bytes:
        """Return messages in which these ids, and those that `read` found, are replaced by hashes."""
        known = {each.encode() for each in ids}
        return _LABELLED.sub(lambda found: self._as_hash(found, known), messages)

    def _as_id(self, found: re.Match[bytes]) -> bytes:
        text = bytes.fromhex(found[1].decode())
        if found[2] != self._digits or not _LABELLED.fullmatch(b"id=" + text):
            return found[0]
        self._sent_back.add(text)
        return b"id=" + text

    def _as_hash(self, found: re.Match[bytes], known: Collection[bytes]) -> bytes:
        if found[1] not in known and found[1] not in self._sent_back:
            return found[0]
        text = found[1].hex() + self._digits.decode()
        self._given[text] = None
        return b"hash=" + text.encode()
