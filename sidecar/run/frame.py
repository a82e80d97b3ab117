"""What stands around the history in a returned prompt: the body's own head and tail, and our own text.

Formats with system messages take the directives after the agent's own, the registry and the placeholder of dropped
iterations as system messages inside the history, and the note after it. Formats whose system prompt is a member of the
body take directives, placeholder and registry there, and no note, since nothing may stand after a tool result. A bare
array of such a format has no place at all: the agent is handed the texts. Our text of earlier calls is taken out of the
member in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from sidecar.prompt.body import Split
from sidecar.prompt.format import Format
from sidecar.run.calls import OwnText, OwnTextKind, OwnTextPlace
from sidecar.run.weigh import PER_MESSAGE

_NOTHING: Final = frozenset({None, b"null", b'""', b"[]"})
"""What a system member is without any text: absent, or what is left of it when all was ours."""


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
    sent_system: bytes | None = None
    """That member as it was sent, without our text."""


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
    name, value = format_.member(split)
    clean = value
    if format_.system is not None and value is not None:
        clean = format_.system.without(value, is_own_text)
    sent = None if clean in _NOTHING else clean
    if format_.system_message is not None:
        framed = _with_messages(split, system, parts, texts=texts, places=places, write=format_.system_message)
        new = clean
    else:
        has_member = format_.system is not None and split.is_object
        framed = _with_member(split, system, parts, texts=texts, has_member=has_member)
        new = clean
        if format_.system is not None and split.is_object:
            for piece in framed.own:
                new = format_.system.add(new, piece.text)
    if new == value or new is None:
        return replace(framed, sent_system=sent)
    head, tail = _replace_member(split, name, new)
    return replace(framed, head=head, tail=tail, system=new, sent_system=sent)


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
    split: Split, system: Sequence[bytes], parts: list[bytes], *, texts: OwnTexts, has_member: bool
) -> Framed:
    written = [
        (OwnTextKind.DIRECTIVES, texts.directives),
        (OwnTextKind.DROPPED, texts.dropped),
        (OwnTextKind.REGISTRY, texts.registry),
    ]
    place = OwnTextPlace.SYSTEM if has_member else OwnTextPlace.CALLER
    own = [OwnText(kind, place, -1, text) for kind, text in written if text]
    return Framed(split.head, [*system, *parts], split.tail, own)


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
