"""What surrounds the history in a returned prompt: the body's own head and tail, and our own text.

Which text is placed where is the format's `Placement`: in a system message before the history or inside it, or in the
body's system member; a bare array has no such member, so the texts are returned to the agent. A note is placed only
after the history, as it changes at each call. Our text of earlier calls is removed from the system member in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from prompt_sidecar.facts.trim_calls import OwnText, OwnTextKind, OwnTextPlace
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, Placement, Stands
from prompt_sidecar.tokens.weigh import PER_MESSAGE

_NOTHING: Final = frozenset({None, b"null", b'""', b"[]"})
"""A system member without any text: absent, or what remains when all of it was ours."""


@dataclass(frozen=True, slots=True)
class OwnTexts:
    """The texts of one prompt; empty ones are not written."""

    directives: str = ""
    dropped: str = ""
    registry: str = ""
    note: str = ""

    @property
    def joined(self) -> str:
        """Return placeholder and registry as the text of one message; empty unless there are both."""
        return f"{self.dropped}\n{self.registry}" if self.dropped and self.registry else ""

    def tokens(self, count: Callable[[str], int]) -> int:
        """Return the tokens of the texts with their framing."""
        present = [text for text in (self.directives, self.dropped, self.registry, self.note) if text]
        return sum(count(text) + PER_MESSAGE for text in present)


@dataclass(frozen=True, slots=True)
class Places:
    """Where among the live records our messages are placed."""

    dropped: int
    registry: int


@dataclass(frozen=True, slots=True)
class FramedPrompt:
    """A complete prompt."""

    head: bytes
    parts: Sequence[bytes]
    tail: bytes
    own: Sequence[OwnText]
    members: Mapping[str, bytes] = field(default_factory=dict)
    """Other members of the body that changed, with their new values."""
    sent_system: bytes | None = None
    """The system member as it was sent, without our text."""
    places: Places = field(default_factory=lambda: Places(0, 0))
    """Where our messages are placed among the live records."""
    leading: int = 0
    """Number of the agent's leading system messages."""


def frame(
    split: Split,
    system: Sequence[bytes],
    parts: list[bytes],
    *,
    texts: OwnTexts,
    places: Places,
    format_: Format,
    is_own_text: Callable[[str], bool],
    drop_invalid: bool = False,
) -> FramedPrompt:
    """Build the returned prompt.

    Args:
        split: the body that was sent, for the part around its messages.
        system: its leading system messages, without ours.
        parts: the live records.
        texts: our own text.
        places: where it is placed among the live records.
        format_: the format.
        is_own_text: whether a text of the system prompt is one of ours, sent back.
        drop_invalid: whether to ask the provider to drop thinking that is not valid under the prompt.
    """
    placement = format_.placement
    name, value = format_.member(split)
    clean = value
    if format_.system is not None and value is not None:
        clean = format_.system.without(value, is_own_text)
    sent = None if clean in _NOTHING else clean
    has_member = format_.system is not None and split.is_object
    outside = _outside(texts, placement, OwnTextPlace.SYSTEM if has_member else OwnTextPlace.CALLER)
    new = clean
    if format_.system is not None and has_member:
        for piece in outside:
            new = format_.system.add(new, piece.text)
    out, inside = [*system, *parts], list[OwnText]()
    if placement.message is not None:
        out, inside = _with_messages(system, parts, texts, places, placement, placement.message)
    members = {} if new == value or new is None else {name: new}
    if drop_invalid and format_.drop_invalid is not None:
        members |= format_.drop_invalid(split)
    head, tail = replace_members(split, members) if members else (split.head, split.tail)
    return FramedPrompt(head, out, tail, [*outside, *inside], members, sent, places, len(system))


def _outside(texts: OwnTexts, placement: Placement, place: OwnTextPlace) -> list[OwnText]:
    """Return our texts that are not in any message."""
    outside = Stands.OUTSIDE
    written = [(OwnTextKind.DIRECTIVES, texts.directives)] if placement.directives is outside else []
    if placement.lists is outside:
        written += [(OwnTextKind.DROPPED, texts.dropped), (OwnTextKind.REGISTRY, texts.registry)]
    return [OwnText(kind, place, -1, text) for kind, text in written if text]


def _with_messages(  # noqa: PLR0917 - what is placed where, in the order of the prompt
    system: Sequence[bytes],
    parts: list[bytes],
    texts: OwnTexts,
    places: Places,
    placement: Placement,
    write: Callable[[str], bytes],
) -> tuple[list[bytes], list[OwnText]]:
    """Return the messages with ours among them, and the places of ours."""
    out: list[bytes] = list(system)
    own: list[OwnText] = []

    def put(kind: OwnTextKind, place: OwnTextPlace, text: str) -> None:
        if text:
            own.append(OwnText(kind, place, len(out), text))
            out.append(write(text))

    if placement.directives is not Stands.OUTSIDE:
        put(OwnTextKind.DIRECTIVES, OwnTextPlace.SYSTEM, texts.directives)
    out += parts[: places.dropped]
    put(OwnTextKind.DROPPED, OwnTextPlace.HISTORY, texts.dropped)
    out += parts[places.dropped : places.registry]
    put(OwnTextKind.REGISTRY, OwnTextPlace.HISTORY, texts.registry)
    out += parts[places.registry :]
    put(OwnTextKind.NOTE, OwnTextPlace.TAIL, texts.note)
    return out, own


def replace_members(split: Split, values: Mapping[str, bytes]) -> tuple[bytes, bytes]:
    """Return the body's head and tail with members replaced; missing members are added at its start."""
    first, last = split.starts[0], split.ends[-1]
    head, tail = [b""], [b""]
    done, after = 0, last
    for name, span in sorted(split.fields.items(), key=lambda field: field[1].start):
        if name not in values:
            continue
        if span.end <= first:
            head += [split.raw[done : span.start], values[name]]
            done = span.end
        else:
            tail += [split.raw[after : span.start], values[name]]
            after = span.end
    whole = b"".join((*head, split.raw[done:first]))
    added = b"".join(
        orjson.dumps(name) + b":" + value + b"," for name, value in values.items() if name not in split.fields
    )
    if added:
        opening = whole.index(b"{") + 1
        whole = whole[:opening] + added + whole[opening:]
    return whole, b"".join((*tail, split.raw[after:]))
