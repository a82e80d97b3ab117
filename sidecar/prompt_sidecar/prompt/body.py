"""A request body as slices: where each message starts and ends, found at the cost of the new messages only.

An agent sends its whole history at every call, so a body mostly begins like the previous one. The scan therefore starts
from the last split: it compares bytes up to the first message that differs (a memcmp), and parses only from there on. A
slice is never copied; a split is offsets into the body that was received.

    {"model": …, "messages": [ {…}, {…}, {…} ], "tools": …}
     ^ head                    ^ starts[0]   ^ ends[-1]  ^ tail

The other members of the body are spans too. Our own text is added to one of them in formats that have the system prompt
there; all others are returned unchanged.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson, SidecarError, TooLarge
from prompt_sidecar.prompt.jsontext import WRITTEN_BYTES, raise_if_out_of_memory
from prompt_sidecar.prompt.structure import check_decoding, check_members, check_slices, never, refuse_members
from prompt_sidecar.prompt.surrogates import without_lone_surrogates

FIELD: Final = "json.body"
"""The request field that error messages of this file refer to."""

MESSAGES: Final = "messages"
"""The body's member for the messages in most formats."""
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_COMMA: Final = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_COMMA_BYTE: Final = ord(",")
_LAST_SPACE: Final = ord(" ")
"""The greatest byte of JSON's white space; outside of strings no smaller byte is anything else."""
_KEY: Final = re.compile(rb'("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
MAX_NAME: Final = 4_096
"""Most bytes of a member's name, with the white space around its colon; providers' names have some tens. Python's
regular expressions keep some hundred bytes for each match of a repeated group, so the length of names must be
limited."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])
_COMPARED: Final = 65_536
"""Bytes of the first message by which it is found in a body, and by which the head before it may be longer than the
previous body's."""
_CHECKED_AT_ONCE: Final = 65_536
"""Bytes decoded at once to check that they are UTF-8."""

Raws = TypeVar("Raws", dict[str, msgspec.Raw], list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `end` of a body."""

    start: int
    end: int


@dataclass(slots=True)
class Split:
    """A body as offsets of its messages and members."""

    raw: bytes
    starts: list[int]
    ends: list[int]
    fields: dict[str, Span]
    """The members of the body other than the messages; empty for a bare array."""
    is_object: bool
    same: int = 0
    """Number of leading messages with the same bytes as in the previous split."""
    is_text: bool = False
    """Whether the messages are a plain string; the only message is that string, quotes included."""
    _view: tuple[int, memoryview] | None = field(default=None, init=False, repr=False, compare=False)
    """The last requested long message, by its index."""

    def __len__(self) -> int:
        return len(self.starts)

    def message(self, index: int) -> bytes:
        """Return the raw bytes of a message."""
        return self.raw[self.starts[index] : self.ends[index]]

    def text(self, index: int) -> bytes | memoryview:
        """Return a message's JSON for decoding: a long one is not copied, and the same object when requested again."""
        if self.ends[index] - self.starts[index] <= WRITTEN_BYTES:
            return self.message(index)
        if self._view is None or self._view[0] != index:
            self._view = index, memoryview(self.raw)[self.starts[index] : self.ends[index]]
        return self._view[1]

    def field(self, name: str) -> bytes | None:
        """Return the raw JSON of a member of the body, or of one inside it (`outer.inner`); None if there is none."""
        outer, _, inner = name.partition(".")
        span = self.fields.get(outer)
        if span is None:
            return None
        value = self.raw[span.start : span.end]
        return _inner(value, inner) if inner else value

    @property
    def head(self) -> bytes:
        """The bytes before the first message."""
        return self.raw[: self.starts[0]]

    @property
    def tail(self) -> bytes:
        """The bytes after the last message."""
        return self.raw[self.ends[-1] :]


def split(
    raw: bytes,
    before: Split | None = None,
    member: str = MESSAGES,
    *,
    text: bool = False,
    check: Callable[[], None] = never,
) -> Split:
    """Split a request body, or a bare message array, into messages.

    Args:
        raw: the body.
        before: the split of the previous body.
        member: the body's member for the messages; the same as in the previous body.
        text: whether the messages may be a plain string.
        check: called now and then; what it raises ends the call.

    Raises:
        InvalidJson: not JSON, neither an object with that member nor an array, a member twice, or no message at all.
    """
    found = _split_after(raw, before, member, check) if before is not None and not before.is_text else None
    if found is None:
        found = _split_whole(raw, before, member, check, text=text)
    _check_text(found)
    if not found.starts:
        field = f"{FIELD}.{member}"
        raise InvalidJson(f"{field} is empty; it must hold at least one message", field=field)
    return found


def join_slices(slices: Sequence[bytes], before: Split | None = None) -> Split:
    """Make a split from separate slices, for formats whose bodies are not JSON."""
    raw = b"".join(slices)
    ends: list[int] = []
    at = 0
    for part in slices:
        at += len(part)
        ends.append(at)
    starts = [0, *ends[:-1]]
    same = 0
    if before is not None:
        same = _common(raw, starts, before, min(len(starts), len(before)), ends)
    return Split(raw, starts, ends, {}, is_object=False, same=same)


def _check_text(found: Split) -> None:
    """Check the body's text.

    Raises InvalidJson if a member other than the messages is not UTF-8; messages are checked when read.
    """
    for name, span in found.fields.items():
        decoder = getincrementaldecoder("utf-8")()
        try:
            for at in range(span.start, span.end, _CHECKED_AT_ONCE):
                decoder.decode(found.raw[at : min(at + _CHECKED_AT_ONCE, span.end)])
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            field = f"{FIELD}.{name}" if name in _KNOWN_MEMBERS else FIELD  # any other name may be text of the prompt
            raise InvalidJson(f"{field} is not JSON: not UTF-8", field=field) from None


def _split_after(raw: bytes, before: Split, member: str, check: Callable[[], None]) -> Split | None:
    """Split a body that shares a prefix of messages with the previous one; None if not even its head is the same."""
    if not before.starts or not raw.startswith(memoryview(before.raw)[: before.starts[0]]):
        return None
    same = _prefix(raw, before, 0)
    if same == 0:
        return None
    at = before.ends[same - 1]
    rest = memoryview(raw)[at:]  # copied once, with what it follows
    starts, ends = before.starts[:same], before.ends[:same]
    head_fields = {name: span for name, span in before.fields.items() if span.end <= before.starts[0]}
    if before.is_object:
        opening = b'{"%s":[0' % member.encode()
        fields, new, _ = _scan_object(b"".join((opening, rest)), at - len(opening), member, check)
    else:
        fields, new = {}, _scan_array(b"".join((b"[0", rest)), 0, at - len(b"[0"), member, whole=True)
    for name, span in fields.items():
        if name in head_fields:
            raise _twice(name)
        head_fields[name] = span
    starts.extend(start for start, _ in new[1:])
    ends.extend(end for _, end in new[1:])
    return Split(raw, starts, ends, head_fields, before.is_object, same)


def _split_whole(raw: bytes, before: Split | None, member: str, check: Callable[[], None], *, text: bool) -> Split:
    at = _skip_space(raw, 0)
    opening = raw[at : at + 1]
    is_text = False
    if opening == b"{":
        fields, spans, is_text = _scan_object(raw, 0, member, check, text=text)
    elif opening == b"[":
        fields, spans = {}, _scan_array(raw, at, 0, member, whole=True)
    else:
        raise InvalidJson(f"{FIELD} must be a JSON object with {member}, or an array of messages", field=FIELD)
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    result = Split(raw, starts, ends, fields, opening == b"{", is_text=is_text)
    if before is not None and before.is_object == result.is_object and before.is_text == is_text:
        bound = min(len(result), len(before))
        while result.same < bound and _equal(result, before, result.same):
            result.same += 1
    return result


def _equal(one: Split, other: Split, index: int) -> bool:
    size = one.ends[index] - one.starts[index]
    if size != other.ends[index] - other.starts[index]:
        return False
    view = memoryview(other.raw)[other.starts[index] : other.ends[index]]
    return one.raw.startswith(view, one.starts[index])


def equal_slice(one: Split, other: Split, index: int) -> bool:
    """Whether the message at `index` has the same bytes in both splits."""
    return index < len(other) and _equal(one, other, index)


def _prefix(raw: bytes, before: Split, low: int, shift: int = 0) -> int:
    """Count the leading messages that `raw` shares with `before`, with at most two full memcmps.

    They have the same offsets, with `shift` added in `raw`.
    """
    high = len(before)
    view = memoryview(before.raw)
    if raw.startswith(view[before.starts[0] : before.ends[high - 1]], before.starts[0] + shift):
        return high if _ends_message(raw, before.ends[high - 1] + shift) else high - 1
    while low < high:  # messages below `low` are equal; the one at `high`, or one before it, is not
        middle = (low + high + 1) // 2
        begin = before.ends[low - 1] if low else before.starts[0]
        if raw.startswith(view[begin : before.ends[middle - 1]], begin + shift):
            low = middle
        else:
            high = middle - 1
    while low and not _ends_message(raw, before.ends[low - 1] + shift):
        low -= 1
    return low


def _ends_message(raw: bytes, at: int) -> bool:
    """Whether a value can end here: the number `1` is not the beginning of `12`, although its bytes are."""
    at = _skip_space(raw, at)
    return raw[at : at + 1] in (b",", b"]")


def _common(raw: bytes, starts: list[int], before: Split, bound: int, ends: list[int]) -> int:
    same = 0
    while same < bound and ends[same] == before.ends[same] and starts[same] == before.starts[same]:
        view = memoryview(before.raw)[before.starts[same] : before.ends[same]]
        if not raw.startswith(view, starts[same]):
            break
        same += 1
    return same


def members_of(raw: bytes) -> dict[str, bytes]:
    """Return an object's members, as the bytes of each; lone surrogates are allowed. Raises InvalidJson."""
    fields, _, _ = _scan_object(raw, 0, None)
    return {name: raw[span.start : span.end] for name, span in fields.items()}


def elements_of(raw: bytes) -> list[bytes]:
    """Return an array's elements, as the bytes of each; lone surrogates are allowed. Raises InvalidJson."""
    spans = _scan_array(raw, _skip_space(raw, 0), 0, "", whole=True)
    return [raw[start:end] for start, end in spans]


def members_after(raw: bytes, before: Split, member: str) -> dict[str, memoryview] | None:
    """Return an object's members, of which only what follows the messages that it shares with a previous body is read.

    Args:
        raw: the body; its head may differ from the previous one's.
        before: the split of the previous body.
        member: the body's member for the messages.

    Returns:
        The members in their order, each as its bytes; None if the body has to be read as a whole: it does not begin
        with the same messages, or something is wrong with it.
    """
    if not before.is_object or before.is_text or not before.starts:
        return None
    first = before.starts[0]
    opening = before.raw[first : min(before.ends[0], first + _COMPARED)]
    begin = raw.find(opening, 0, first + len(opening) + _COMPARED)
    same = _prefix(raw, before, 0, begin - first) if begin > 0 else 0
    if same == 0:
        return None
    skipped = before.ends[same - 1] - first - 1
    rest = memoryview(raw)[before.ends[same - 1] + begin - first :]
    shortened = b"".join((memoryview(raw)[:begin], b"0", rest))  # one number in the place of the shared messages
    try:
        fields, spans, _ = _scan_object(shortened, 0, member)
    except SidecarError:
        return None
    if not spans or spans[0] != (begin, begin + 1):  # what was found is in another member, or within a text
        return None
    start = shortened.rindex(b"[", 0, begin)
    end = shortened.index(b"]", spans[-1][1]) + 1
    found = [(span.start, span.end, name) for name, span in fields.items()]
    found.append((start, end, member))
    view = memoryview(raw)
    return {
        name: view[low + skipped if low > begin else low : high + skipped if high > begin else high]
        for low, high, name in sorted(found)
    }


def _scan_object(
    raw: bytes, shift: int, member: str | None, check: Callable[[], None] = never, *, text: bool = False
) -> tuple[dict[str, Span], list[tuple[int, int]], bool]:
    """Return spans of an object's members and of its messages, and whether these are a plain string.

    `shift` is added to every offset. `member`: the member with the messages; None if there is none.
    """
    check_slices(raw, FIELD)
    check_members(raw, FIELD, check)
    if len(raw) > WRITTEN_BYTES:
        check()
        _key(raw, _skip_space(raw, 0) + 1)  # a name of such a length is refused before the decoder copies it
    try:
        members = _decoded(_raw_object, raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(error, raw) from None
    except RecursionError:
        raise InvalidJson(f"{FIELD} is nested too deeply", field=FIELD) from None
    refuse_members(len(members), FIELD)
    at = _skip_space(raw, 0) + 1
    fields: dict[str, Span] = {}
    messages: list[tuple[int, int]] | None = None
    is_text = False
    while (key := _key(raw, at)) is not None:
        name = _decode_key(key.group(1))
        value = members.get(name)
        at = key.end()
        # For a duplicate member the decoder returns its last value, so an earlier one with other bytes is detected
        # here.
        if value is None or name in fields or (name == member and messages is not None):
            raise _twice(name)
        size = len(memoryview(value))
        if not raw.startswith(value, at) and without_lone_surrogates(raw[at : at + size]) != bytes(value):
            raise _twice(name)
        if name == member:
            is_text = text and raw[at : at + 1] == b'"'
            whole = (at + shift, at + size + shift)
            messages = [whole] if is_text else _scan_array(raw, at, shift, member, memoryview(value))
        else:
            fields[name] = Span(at + shift, at + size + shift)
        at += size
        comma = _COMMA.match(raw, at)
        if comma is None:
            break
        at = comma.end()
    if raw[_skip_space(raw, at) : _skip_space(raw, at) + 1] != b"}":
        raise _twice("")  # the last value of a member is a prefix of an earlier one
    if messages is None and member is not None:
        raise InvalidJson(f"{FIELD}.{member} is missing; the body must have an array of messages", field=FIELD)
    return fields, messages or [], is_text


def _scan_array(
    text: bytes, at: int, shift: int, member: str, value: memoryview | None = None, *, whole: bool = False
) -> list[tuple[int, int]]:
    """Return spans of the elements of the array that starts at `at`; `whole`: the array is all of the text."""
    if value is None:
        check_slices(text, FIELD)
    try:
        slices = _decoded(_raw_array, text if value is None else value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not whole:
            field = f"{FIELD}.{member}"
            raise InvalidJson(f"{field} must be an array of messages", field=field) from error
        raise _malformed(error, text) from None
    except RecursionError:
        raise InvalidJson(f"{FIELD} is nested too deeply", field=FIELD) from None
    spans: list[tuple[int, int]] = []
    at = _skip_space(text, at + 1)
    for element in slices:
        end = at + len(element)
        spans.append((at + shift, end + shift))
        if text[end] == _COMMA_BYTE and text[end + 1] > _LAST_SPACE:  # no white space around it, as most agents write
            at = end + 1
            continue
        comma = _COMMA.match(text, end)
        at = end if comma is None else comma.end()
    return spans


def _key(raw: bytes, at: int) -> re.Match[bytes] | None:
    """Match the name of the member that begins at `at`; None if there is none. Raises TooLarge if it is too long."""
    at = _skip_space(raw, at)
    found = _KEY.match(raw, at, at + MAX_NAME)
    if (found is None or found.end() == at + MAX_NAME) and raw[at : at + 1] == b'"':
        raise TooLarge(
            f"{FIELD} has a member whose name takes over {MAX_NAME:,} bytes", field=FIELD, bound="json.member_name"
        )
    return found


def _inner(value: bytes, path: str) -> bytes | None:
    """Return the raw JSON at a dotted path inside a member; None if it is absent."""
    for name in path.split("."):
        if value[:1] != b"{":
            return None
        try:
            found = _decoded(_raw_object, value).get(name)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _malformed(error, value) from None
        if found is None:
            return None
        value = bytes(found)
    return value


def _decoded(decoder: msgspec.json.Decoder[Raws], text: bytes | memoryview) -> Raws:
    """Find the parts of an object or array. Lone surrogates, which the library rejects, are replaced first."""
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:
        return decoder.decode(without_lone_surrogates(bytes(text)))


def _skip_space(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _decode_key(literal: bytes) -> str:
    try:
        name: str = orjson.loads(without_lone_surrogates(literal))
    except orjson.JSONDecodeError as error:
        raise_if_out_of_memory(error)
        raise InvalidJson(f"{FIELD} has a member whose name is not a valid string", field=FIELD) from None
    return name


def _twice(name: str) -> InvalidJson:
    shown = name if name in _KNOWN_MEMBERS else "a member"  # any other name may be text of the prompt
    return InvalidJson(f"{FIELD} holds {shown} twice", field=FIELD)


_KNOWN_MEMBERS: Final = frozenset(
    {
        *("messages", "input", "contents", "content", "model", "stream", "temperature", "metadata", "user"),
        *("tools", "tool_choice", "functions", "toolConfig", "tool_config", "toolChoice", "response_format", "text"),
        *("system", "instructions", "systemInstruction", "system_instruction", "prompt", "reasoning", "thinking"),
        *("max_tokens", "generationConfig", "generation_config", "inferenceConfig", "additionalModelRequestFields"),
        *("providerOptions", "safetySettings", "stop", "stop_sequences", "context_management", "mcp_servers"),
    }
)


def _malformed(error: Exception, text: bytes) -> InvalidJson:
    """Return the error for malformed JSON; orjson describes lone surrogates better. Neither library quotes the text."""
    reason = str(error) if isinstance(error, msgspec.DecodeError) else "not UTF-8"
    try:
        check_decoding(text, FIELD)
        orjson.loads(text)
    except TooLarge:
        pass
    except orjson.JSONDecodeError as better:
        if "surrogate" in str(better):
            reason = str(better).split(": line ", 1)[0]
    return InvalidJson(f"{FIELD} is not JSON: {reason}", field=FIELD)


def continued(before: Split, count: int, after: Split, *, is_json: bool) -> Split:
    """Return the whole prompt for a delta body, which has only the messages after the previous one's first `count`.

    The earlier messages are copied once, and keep their offsets if the head has the same length.
    """
    head = after.head
    old = memoryview(before.raw)[before.starts[0] : before.ends[count - 1]] if count else memoryview(b"")
    comma = b"," if count and is_json else b""
    raw = b"".join((head, old, comma, memoryview(after.raw)[len(head) :]))
    old_shift = len(head) - before.starts[0] if count else 0
    new_shift = len(old) + len(comma)
    starts, ends = before.starts[:count], before.ends[:count]
    if old_shift:
        starts, ends = [start + old_shift for start in starts], [end + old_shift for end in ends]
    starts += [start + new_shift for start in after.starts]
    ends += [end + new_shift for end in after.ends]
    fields = {
        name: span if span.end <= len(head) else Span(span.start + new_shift, span.end + new_shift)
        for name, span in after.fields.items()
    }
    return Split(raw, starts, ends, fields, after.is_object, same=count)
