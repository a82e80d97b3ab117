"""What stands around the history in a returned prompt: the body's own head and tail, and our own text.

Formats with system messages take the directives after the agent's own, the registry and the placeholder of dropped
iterations as system messages inside the history, and the note after it. Formats whose system prompt is a member of the
body take directives, placeholder and registry there, and no note, since nothing may stand after a tool result; where a
model that binds thinking takes system messages inside the history, placeholder and registry stand there. A bare
array of such a format has no place at all: the agent is handed the texts. Our text of earlier calls is taken out of the
member in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from prompt_sidecar.facts.trim_calls import OwnText, OwnTextKind, OwnTextPlace
from prompt_sidecar.prompt.body import FIELD, Split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.tokens.weigh import PER_MESSAGE

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
    members: Mapping[str, bytes] = field(default_factory=dict)
    """Other members of the body that changed, with their new values."""
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
    drop_invalid: bool = False,
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
        drop_invalid: whether to ask the provider to drop thinking that is not valid under the prompt.
    """
    name, value = format_.member(split)
    clean = value
    if format_.system is not None and value is not None:
        clean = format_.system.without(value, is_own_text)
    sent = None if clean in _NOTHING else clean
    new = clean
    if format_.directives_in_history and format_.system_message is not None:
        framed = _with_messages(split, system, parts, texts=texts, places=places, write=format_.system_message)
    else:
        inside = OwnTexts()
        if format_.system_message is not None:
            texts, inside = replace(texts, dropped="", registry=""), replace(texts, directives="", note="")
        has_member = format_.system is not None and split.is_object
        framed = _with_member(split, system, parts, texts=texts, has_member=has_member)
        if format_.system is not None and split.is_object:
            for piece in framed.own:
                new = format_.system.add(new, piece.text)
        if format_.system_message is not None:
            after = _with_messages(split, system, parts, texts=inside, places=places, write=format_.system_message)
            framed = replace(after, own=[*framed.own, *after.own])
    members = {} if new == value or new is None else {name: new}
    if drop_invalid and format_.system_after_user:
        members |= _dropping_invalid(split)
    if not members:
        return replace(framed, sent_system=sent)
    head, tail = _replace_members(split, members)
    return replace(framed, head=head, tail=tail, members=members, sent_system=sent)


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


def _replace_members(split: Split, values: Mapping[str, bytes]) -> tuple[bytes, bytes]:
    """The body's head and tail with members replaced; those that it does not have are added at its start."""
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


def _dropping_invalid(split: Split) -> Mapping[str, bytes]:
    """The member that asks Anthropic to drop thinking that is not valid, where the body asks for thinking.

    Source: platform.claude.com, "Preserved thinking" (copy of 2026-09-26); the request needs a beta header beside it.
    """
    value = split.field("thinking") if split.is_object else None
    thinking = load(value, f"{FIELD}.thinking") if value is not None else None
    if type(thinking) is not dict or "block_binding" in thinking:
        return {}
    return {"thinking": orjson.dumps(thinking | {"block_binding": {"prefix_mismatch_behavior": "drop_block"}})}


def own_tokens(texts: OwnTexts, count: Callable[[str], int]) -> int:
    """Tokens of our own text with what stands around it."""
    present = [text for text in (texts.directives, texts.dropped, texts.registry, texts.note) if text]
    return sum(count(text) + PER_MESSAGE for text in present)
