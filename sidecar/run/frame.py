"""What stands around the history in a returned prompt: the body's own head and tail, and our own text.

Formats with system messages take the directives after the agent's own, the registry and the placeholder of dropped
iterations as system messages inside the history, and the note after it. Formats whose system prompt is a member of the
body take directives, placeholder and registry there, and no note, since nothing may stand after a tool result. A bare
array of such a format has no place at all: the agent is handed the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import orjson

from sidecar.errors import InvalidJson
from sidecar.prompt.body import Split
from sidecar.prompt.format import Format
from sidecar.run.calls import OwnText, OwnTextKind, OwnTextPlace
from sidecar.run.weigh import PER_MESSAGE

_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """The texts of one prompt; empty ones are not written."""

    directives: str = ""
    dropped: str = ""
    registry: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Where among the live records our messages stand."""

    dropped: int
    registry: int


@dataclass(frozen=True, slots=True)
class Framed:
    """A prompt put together."""

    head: bytes
    parts: Sequence[bytes]
    tail: bytes
    own: Sequence[OwnText]
    system: bytes | None = None
    """The new value of the body's system member, where it changed."""


def frame(
    split: Split,
    system: Sequence[bytes],
    parts: list[bytes],
    *,
    texts: OwnTexts,
    places: Places,
    format_: Format,
    is_own_text: Callable[[str], bool],
) -> Framed:
    """Put the returned prompt together.

    Args:
        split: the body that was sent, for what stands around its messages.
        system: its leading system messages, without ours.
        parts: the live records.
        texts: our own text.
        places: where it stands among the live records.
        format_: the format.
        is_own_text: whether a text of the system prompt is one of ours, sent back.
    """
    if format_.system_message is not None:
        return _with_messages(split, system, parts, texts=texts, places=places, write=format_.system_message)
    return _with_member(split, system, parts, texts=texts, format_=format_, is_own_text=is_own_text)


def _with_messages(
    split: Split,
    system: Sequence[bytes],
    parts: list[bytes],
    *,
    texts: OwnTexts,
    places: Places,
    write: Callable[[str], bytes],
) -> Framed:
    out: list[bytes] = list(system)
    own: list[OwnText] = []

    def put(kind: OwnTextKind, place: OwnTextPlace, text: str) -> None:
        if text:
            own.append(OwnText(kind, place, len(out), text))
            out.append(write(text))

    put(OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM, texts.directives)
    out += parts[: places.dropped]
    put(OwnTextKind.DROPPED, OwnTextPlace.HISTORY, texts.dropped)
    out += parts[places.dropped : places.registry]
    put(OwnTextKind.REGISTRY, OwnTextPlace.HISTORY, texts.registry)
    out += parts[places.registry :]
    put(OwnTextKind.NOTE, OwnTextPlace.TAIL, texts.note)
    return Framed(split.head, out, split.tail, own)


def _with_member(
    split: Split,
    system: Sequence[bytes],
    parts: list[bytes],
    *,
    texts: OwnTexts,
    format_: Format,
    is_own_text: Callable[[str], bool],
) -> Framed:
    written = [
        (OwnTextKind.DIRECTIVES, texts.directives),
        (OwnTextKind.DROPPED, texts.dropped),
        (OwnTextKind.REGISTRY, texts.registry),
    ]
    place = OwnTextPlace.SYSTEM if split.is_object else OwnTextPlace.CALLER
    own = [OwnText(kind, place, -1, text) for kind, text in written if text]
    out = [*system, *parts]
    if not split.is_object:
        return Framed(split.head, out, split.tail, own)
    value = split.field(format_.system_field)
    clean = None if value is None else without_own(value, is_own_text)
    new = clean
    if format_.add_system is not None:
        for piece in own:
            new = format_.add_system(new, piece.text)
    if new == value or new is None:
        return Framed(split.head, out, split.tail, own)
    head, tail = _replace_member(split, format_.system_field, new)
    return Framed(head, out, tail, own, new)


def without_own(value: bytes, is_own_text: Callable[[str], bool]) -> bytes:
    """A system prompt without the blocks that are ours, sent back. Raises InvalidJson if it is not strict JSON."""
    if value[:1] != b"[":
        return value
    blocks = [bytes(block) for block in _raw_array.decode(value)]
    kept = [block for block in blocks if not is_own_text(_text_of(block))]
    return value if len(kept) == len(blocks) else b"[" + b",".join(kept) + b"]"


def _text_of(block: bytes) -> str:
    try:
        value = orjson.loads(block)
    except orjson.JSONDecodeError:
        raise InvalidJson("json.body.system is not strict JSON", field="json.body.system") from None
    text = value.get("text") if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def _replace_member(split: Split, name: str, value: bytes) -> tuple[bytes, bytes]:
    """The body's head and tail with one member replaced, or added at its start."""
    span = split.fields.get(name)
    first, last = split.starts[0], split.ends[-1]
    if span is None:
        head = split.head
        opening = head.index(b"{") + 1
        return head[:opening] + orjson.dumps(name) + b":" + value + b"," + head[opening:], split.tail
    if span.end <= first:
        return split.raw[: span.start] + value + split.raw[span.end : first], split.tail
    return split.head, split.raw[last : span.start] + value + split.raw[span.end :]


def own_tokens(texts: OwnTexts, count: Callable[[str], int]) -> int:
    """Tokens of our own text with what stands around it."""
    present = [text for text in (texts.directives, texts.dropped, texts.registry, texts.note) if text]
    return sum(count(text) + PER_MESSAGE for text in present)
