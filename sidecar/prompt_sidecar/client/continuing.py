"""What a run's last prompt was made of, so that the next one is sent as the messages since, with a `base_revision`.

The sidecar adds these messages to the untrimmed history that it has, and its answer is the one to the whole prompt. The
prompt has to begin with exactly the messages that a revision covers: the same values in the same order, as they are
written in JSON. Revisions of earlier prompts serve as well, for agents that move marks of the provider's cache from
message to message, or go back in their history. A prompt is sent whole if it has no such beginning, or if the model has
spoken more than once since the last one, as another process may have answered for the sidecar meanwhile.

Messages that are a program's own objects are kept as JSON types in containers of their own, since an agent may change
its objects at any time; texts are not copied. Comparing a history with what is kept of it reads no text where the
agent's objects still hold the same one. Of a prompt that is bytes or text, the bytes themselves are kept.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from prompt_sidecar.client import native
from prompt_sidecar.client.sent import Edit
from prompt_sidecar.providers.messages import FormatMessages, unmarked

MOST_REVISIONS: Final = 8
"""Revisions of a run that are remembered, the newest. Marks of the cache are moved over one or two prompts; a revision
takes about 2 kB at 500 trimmed items."""
OWN_CALL: Final = 1
"""Times that the model has spoken beyond the last prompt if it has answered that one and no other."""
MOST_WAIT: Final = 30
"""Most prompts that are sent whole after the sidecar has not known the messages before several times in a row. A run
whose calls reach any of several replicas would else pay for two calls each time."""
ALIKE: Final = 0.5
"""Share of the last prompt's bytes that one has to begin with to be read as its continuation. Reading takes some
milliseconds a megabyte, once a run; what differs earlier is another conversation."""
_LEAVES: Final = frozenset({str, int, bool, type(None)})
_decoder: Final = json.JSONDecoder()
Span: TypeAlias = tuple[int, int]


class Covered(NamedTuple):
    """A revision, and the beginning of a history that it covers."""

    messages: int
    """How many; `UNREAD`: all of a prompt that is not read yet."""
    revision: bytes
    size: int
    """Bytes of the messages as JSON."""


UNREAD: Final = -1
NOTHING: Final = Covered(0, b"", 0)


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of a run's last prompt, and the revisions that cover their beginnings."""

    format: str
    in_body: bool
    """Whether they were a member of a body, and not a bare list."""
    messages: tuple[Any, ...] = ()
    """As JSON types in containers that nobody else has; empty if the prompt was bytes or text."""
    raw: bytes = b""
    """A prompt that was bytes or text."""
    first: int = -1
    """Where in `raw` the first message starts; -1: not known yet."""
    ends: tuple[int, ...] = ()
    """Where in `raw` each message ends."""
    size: int = 0
    """Bytes of the messages as JSON."""
    revisions: tuple[Covered, ...] = ()
    """Those that cover its beginnings, the shortest first."""
    edits: Mapping[str, tuple[Edit, ...]] | None = None
    """Those of messages in the answer to the last prompt, by the beginning of their pointers; None: not known."""
    misses: int = 0
    """How often in a row the sidecar has not known the messages before."""
    wait: int = 0
    """Prompts that are sent whole before the newest messages are sent alone again."""

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        edits = sum(len(value) for each in (self.edits or {}).values() for _, _, value in each)
        return self.size + edits + sum(len(known.revision) for known in self.revisions)

    @property
    def newest(self) -> bytes:
        """The revision of the last prompt's answer; empty if there is none."""
        return self.revisions[-1].revision if self.revisions else b""

    def answered(self, revision: bytes) -> SentMessages:
        """Return them with the revision that covers all of them."""
        count = len(self.messages) or len(self.ends) or UNREAD
        before = tuple(known for known in self.revisions if known.messages != count)[1 - MOST_REVISIONS :]
        return replace(self, revisions=(*before, Covered(count, revision, self.size)))

    def base(self, common: int, count: int) -> Covered:
        """Return the revision that covers most of the `common` first of `count` messages, or `NOTHING`.

        At least one message is left to be sent.
        """
        usable = [known for known in self.revisions if 0 < known.messages <= min(common, count - 1)]
        return usable[-1] if usable else NOTHING

    def within(self, common: int) -> tuple[Covered, ...]:
        """Return the revisions that cover no more than the `common` first messages."""
        return tuple(known for known in self.revisions if known.messages <= common)


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt as it is sent."""

    body: bytes
    base: bytes = b""
    """The revision that the body's messages follow; empty if the body is whole."""
    span: Span | None = None
    """Where in the body the array of messages is; None if that is not known."""
    sent: SentMessages | None = None
    """What is kept of the whole prompt once it is answered; None: nothing."""


def prepared(prompt: Any, format: str, shape: FormatMessages, last: SentMessages | None) -> SentPrompt:
    """Return a prompt as it is sent after the `last` one of its run: the messages since, or whole.

    Raises:
        TypeError, ValueError, RecursionError: it contains a value that JSON has no form for.
    """
    if isinstance(prompt, bytes | str):
        made = _prepared_bytes(prompt if isinstance(prompt, bytes) else prompt.encode(), format, shape, last)
    else:
        made = _prepared_objects(prompt, format, shape, last)
    if last is None or made.sent is None or not last.misses:
        return made
    if not made.base:
        return replace(made, sent=replace(made.sent, misses=last.misses, wait=last.wait))
    if not last.wait:
        return made
    waiting = replace(made.sent, misses=last.misses, wait=last.wait - 1)
    return SentPrompt(whole_body(prompt), sent=waiting)


def sent_again(prompt: Any, sent: SentPrompt, last: SentMessages | None) -> SentPrompt:
    """Return a prompt in its whole form after the sidecar has not known the messages before those that were `sent`.

    At the second time in a row and later the run's next prompts are sent whole as well, twice as many each time.
    """
    kept = sent.sent
    if kept is not None:
        misses = last.misses + 1 if last is not None else 1
        kept = replace(kept, revisions=(), misses=misses, wait=min(2**misses - 2, MOST_WAIT))
    return SentPrompt(whole_body(prompt), sent=kept)


def whole_body(prompt: Any) -> bytes:
    """Return a prompt in JSON. Raises as `prepared`."""
    if isinstance(prompt, bytes):
        return prompt
    return prompt.encode() if isinstance(prompt, str) else native.dumped(prompt)


def _prepared_objects(prompt: Any, format: str, shape: FormatMessages, last: SentMessages | None) -> SentPrompt:
    messages, in_body = _messages(prompt, shape.messages), isinstance(prompt, Mapping)
    if not messages:
        return SentPrompt(native.dumped(prompt))
    if last is None or last.in_body != in_body or not last.messages:
        last = SentMessages(format, in_body)
    known = last.messages
    common = _common(messages, known)
    kept = (*known[:common], *map(_frozen, messages[common:]))
    base = last.base(common, len(messages))
    # Where only marks of the cache were moved, the same messages were sent before.
    since = len(known) if common < len(known) and _alike(kept, known, common) else common
    if _calls(kept[since:], shape) > OWN_CALL:
        base = NOTHING
    body, span = _written(prompt, shape.messages, messages[base.messages :])
    revisions = last.within(max(common, since))
    sent = SentMessages(format, in_body, kept, size=base.size + span[1] - span[0], revisions=revisions)
    return SentPrompt(body, base.revision, span, sent)


def merged(kept: Mapping[str, tuple[Edit, ...]], new: Sequence[Edit], member: str) -> list[Edit]:
    """Return all edits of a prompt, from those that were kept of the last one and those that have changed.

    Args:
        kept: see `SentMessages.edits`.
        new: the answer's.
        member: the body's member for the messages; empty if there is no body.
    """
    messages, others = by_message(new, member)
    together = {**kept, **messages}
    places = sorted(together, key=lambda pointer: int(pointer.rpartition("/")[2]), reverse=True)
    return [*(edit for place in places for edit in together[place]), *others]


def by_message(edits: Sequence[Edit], member: str) -> tuple[dict[str, tuple[Edit, ...]], list[Edit]]:
    """Split an answer's edits into those of messages, by the beginning of their pointers, and the others, in order."""
    base = f"/{member}/" if member else "/"
    messages: dict[str, tuple[Edit, ...]] = {}
    others: list[Edit] = []
    for edit in edits:
        operation, pointer, _ = edit
        if operation == native.INSERT or not pointer.startswith(base):
            others.append(edit)
            continue
        place = base + pointer[len(base) :].partition("/")[0]
        messages[place] = (*messages.get(place, ()), edit)
    return messages, others


def _calls(messages: Sequence[Any], shape: FormatMessages) -> int:
    """Count how often the model speaks: its messages that follow no other of it."""
    speaks, calls = False, 0
    for message in messages:
        now = isinstance(message, dict) and shape.from_model(message)
        calls += now and not speaks
        speaks = now
    return calls


def _alike(messages: Sequence[Any], known: Sequence[Any], since: int) -> bool:
    """Whether messages begin with all known ones, but for marks of the cache in those from `since` on."""
    pairs = zip(messages[since : len(known)], known[since:], strict=False)
    return len(messages) >= len(known) and all(unmarked(one) == unmarked(other) for one, other in pairs)


# -- a program's own objects -----------------------------------------------------------------------------------------


def _messages(prompt: Any, member: str) -> Sequence[Any] | None:
    """Return the messages of a prompt of native objects; None if they are no list, or a member's name is no text."""
    if isinstance(prompt, Mapping):
        messages = prompt.get(member) if all(type(name) is str for name in prompt) else None
    else:
        messages = prompt
    return messages if type(messages) in (list, tuple) else None


def _written(prompt: Any, member: str, messages: Sequence[Any]) -> tuple[bytes, Span]:
    """Return a prompt as JSON with these messages in place of its own, and where their array is in it."""
    array = native.dumped(messages)
    if not isinstance(prompt, Mapping):
        return array, (0, len(array))
    parts: list[bytes] = []
    at, span = 1, (0, 0)
    for name, value in prompt.items():
        key = native.dumped(name) + b":"
        if name == member:
            span = at + len(key), at + len(key) + len(array)
        parts.append(key + (array if name == member else native.dumped(value)))
        at += len(parts[-1]) + 1
    return b"{%s}" % b",".join(parts), span


def _common(messages: Sequence[Any], known: Sequence[Any]) -> int:
    """Return how many messages are written in JSON as the known ones were, from the first on."""
    pairs = enumerate(zip(messages, known, strict=False))
    return next((at for at, (new, old) in pairs if not _same(new, old)), min(len(messages), len(known)))


def _frozen(value: Any) -> Any:
    """Return a value as JSON types in containers of its own; texts are not copied.

    Raises:
        TypeError, ValueError, RecursionError: JSON has no form for it.
    """
    kind = type(value)
    if kind in _LEAVES or kind is float:
        return value
    if kind is dict and all(type(name) is str for name in value):
        return {name: _frozen(inner) for name, inner in value.items()}
    if kind is list or kind is tuple:
        return [_frozen(inner) for inner in value]
    return json.loads(native.dumped(value))


def _same(value: Any, kept: Any) -> bool:
    """Whether a value is written in JSON as the kept one was. Raises as `_frozen` does."""
    if value is kept:  # a leaf, as containers are kept as copies
        return True
    kind = type(value)
    if kind is dict:
        if type(kept) is not dict or len(value) != len(kept):
            return False
        for (name, inner), (known, other) in zip(value.items(), kept.items(), strict=True):
            if name != known or type(name) is not str or not (inner is other or _same(inner, other)):
                return False
        return True
    if kind is list or kind is tuple:
        return type(kept) is list and len(value) == len(kept) and all(map(_same, value, kept))
    if kind in _LEAVES:
        return type(kept) is kind and bool(value == kept)
    if kind is float:  # 0.0 == -0.0, but they are written differently
        return type(kept) is float and repr(value) == repr(kept)
    return _same(json.loads(native.dumped(value)), kept)


# -- bytes and text --------------------------------------------------------------------------------------------------


def _prepared_bytes(raw: bytes, format: str, shape: FormatMessages, last: SentMessages | None) -> SentPrompt:
    """Return the messages since an earlier prompt between the body's own beginning and end, or the whole body.

    They have to follow after a comma without space, which is what the sidecar writes before them.
    """
    new = SentMessages(format, raw.lstrip()[:1] == b"{", raw=raw, size=len(raw))
    if last is None or not last.raw or last.in_body != new.in_body:
        return SentPrompt(raw, sent=new)
    alike = _common_bytes(raw, last.raw)
    if alike < ALIKE * len(last.raw):
        return SentPrompt(raw, sent=new)
    try:
        last = last if last.first >= 0 else _read(last, shape.messages)
        if last.first < 0 or alike < last.first:
            return SentPrompt(raw, sent=new)
        common = bisect_right(last.ends, alike)
        added, messages = _read_on(raw, last.ends[common - 1] if common else last.first, first=not common)
    except (ValueError, RecursionError):
        return SentPrompt(raw, sent=new)
    ends = (*last.ends[:common], *added)
    base = last.base(common, len(ends))
    before = [json.loads(last.raw[_start(last, at) : last.ends[at]]) for at in range(common, len(last.ends))]
    since = len(before) if before and _alike(messages, before, 0) else 0
    new = replace(new, first=last.first, ends=ends, revisions=last.within(common + since))
    at = ends[base.messages - 1]
    if base is NOTHING or _calls(messages[since:], shape) > OWN_CALL or raw[at : at + 2] != b",{":
        return SentPrompt(raw, sent=new)
    return SentPrompt(raw[: last.first] + raw[at + 1 :], base.revision, None, new)


def _start(sent: SentMessages, at: int) -> int:
    """Return where a message starts in the bytes of its prompt, or the comma before it."""
    return sent.raw.index(b"{", sent.ends[at - 1]) if at else sent.first


def _read(sent: SentMessages, member: str) -> SentMessages:
    """Find the messages in the bytes of a prompt; unchanged if there are none. Raises ValueError if it is not JSON."""
    text = sent.raw.decode()
    first = _first(text, member)
    if first < 0:
        return sent
    first = first if text.isascii() else len(text[:first].encode())
    ends, _ = _read_on(sent.raw, first, first=True)
    revisions = tuple(known._replace(messages=len(ends)) for known in sent.revisions)  # there is one at most
    return replace(sent, first=first, ends=ends, revisions=revisions)


def _common_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _first(text: str, member: str) -> int:
    """Return where a body's first message starts; -1 if it has none. Raises ValueError if it is not JSON."""
    at = _space(text, 0)
    if text[at : at + 1] == "[":
        return _space(text, at + 1)
    while text[at : at + 1] in ("{", ","):
        name, at = _decoder.raw_decode(text, _space(text, at + 1))
        at = _space(text, at)
        if text[at : at + 1] != ":":
            return -1
        at = _space(text, at + 1)
        if name == member:
            return _space(text, at + 1) if text[at : at + 1] == "[" else -1
        _, at = _decoder.raw_decode(text, at)
        at = _space(text, at)
    return -1


def _read_on(raw: bytes, at: int, *, first: bool) -> tuple[tuple[int, ...], list[Any]]:
    """Read the messages of a body from the `first` one on, or from the end of another one.

    Returns:
        The end of each, and the messages.

    Raises:
        ValueError: this is not the rest of an array of objects.
    """
    text = raw[at:].decode()
    ends: list[int] = []
    found: list[Any] = []
    place, counted, bytes_ = 0, 0, at
    plain = text.isascii()
    while first or text[place : place + 1] == ",":
        value, end = _decoder.raw_decode(text, _space(text, place + (not first)))
        first = False
        if type(value) is not dict:
            raise ValueError("a message is not an object")
        bytes_ += end - counted if plain else len(text[counted:end].encode())
        counted = end
        ends.append(bytes_)
        found.append(value)
        place = _space(text, end)
    if text[place : place + 1] != "]":
        raise ValueError("the array has no end")
    return tuple(ends), found


def _space(text: str, at: int) -> int:
    """Return where the next character is that is no white space."""
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at
