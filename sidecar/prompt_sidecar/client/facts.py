"""What the client returns, read from the sidecar's messages.

Most of it mirrors the protos, and is generated (`answers.py`); here is what holds a prompt or a text of the caller.
All of it is read by the names and types of its fields, so a new field of the protos needs no line in the client.
"""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from prompt_sidecar.client.answers import (
    Cache,
    CeilingUse,
    Comparison,
    Finding,
    HistorySize,
    OwnText,
    RepeatedCall,
    StashEntry,
    Tokens,
    Trim,
)
from prompt_sidecar.client.schema import enum_name

Fact = TypeVar("Fact")
Prompt = TypeVar("Prompt")


@dataclass(frozen=True, slots=True)
class Restored:
    """A tool call's arguments with values in place of masks."""

    arguments: str
    restored: int
    not_allowed: int
    """Masks that stay, as no pair of tool and kind on the sidecar's list allows them."""
    unknown: int
    """Masks that stay, as the sidecar does not have their values."""
    unknown_masks: tuple[str, ...] = ()
    """Those masks, each once; at most 100."""


@dataclass(frozen=True, slots=True)
class Trimmed(Generic[Prompt]):
    """A prompt to send to the model: trimmed, or made without the sidecar where the client failed open."""

    prompt: Prompt
    """In the shape that was given. Objects that were not trimmed are the very same objects."""
    trimmed: bool = False
    """Whether the sidecar answered; `trims` lists what it trimmed, if anything."""
    reason: str = ""
    """Why the sidecar did not trim it: the reason of its error, a gRPC status code, or CIRCUIT_OPEN."""
    fallback: str = ""
    """The kind of a prompt made without the sidecar: `last_prompt` (with the messages since), `left_out` (the same
    without the oldest iterations) or `as_given`. Empty: the sidecar trimmed it, or it must not be sent."""
    left_out: int = 0
    """Iterations that the client left out since the sidecar last answered."""
    thinking_removed: int = 0
    """Blocks of thinking that the client removed, as the provider would refuse them: what precedes them has changed."""
    refused: bool = False
    """Whether the provider is known to have refused it as too long."""
    fits: bool | None = None
    """Whether it is within the limit; None: it was not counted."""
    no_fit_reason: str = "unspecified"
    trims: tuple[Trim, ...] = ()
    stash_entries: tuple[StashEntry, ...] = ()
    tokens: Tokens | None = None
    revision: bytes = b""
    cache: Cache | None = None
    own_text: tuple[OwnText, ...] = ()
    compacted: bool = False
    iteration: int = 0
    not_stashable: int = 0
    revision_use: str = "unspecified"
    history_size: HistorySize | None = None
    crossed_percent: tuple[int, ...] = ()
    repeated_calls: tuple[RepeatedCall, ...] = ()
    thinking_invalid_from: int | None = None
    provider_edits: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What the guard found in what is new; never the text."""
    ceilings: tuple[CeilingUse, ...] = ()
    """The ceilings that are set, with what is used of them."""
    observed_only: bool = False
    """Whether the sidecar only observes: the prompt is the one that was given, and the rest says what would be done."""
    comparison: Comparison | None = None
    """What the run's prompts cost so far, next to never trimming; None: the prompt is not part of the run's history."""
    untrimmed: str = ""
    """Why the sidecar took nothing out, as docs/untrimmed.md lists; empty: it did, or it did not answer (`reason`)."""


def read(fact: Callable[..., Fact], message: Any, **more: Any) -> Fact:
    """Return a dataclass with its message's values; `more` are the fields that the message does not have."""
    known = message.DESCRIPTOR.fields_by_name
    taken = {name: take(message, known[name]) for name, take in _takers(fact).items() if name in known}
    return fact(**(taken | more))


@cache
def _takers(fact: Any) -> dict[str, Callable[[Any, Any], Any]]:
    hints = typing.get_type_hints(fact)
    return {field.name: _taker(hints[field.name]) for field in fields(fact)}


def _taker(hint: Any) -> Callable[[Any, Any], Any]:
    """Return what reads a field of this type from a message, given the field's descriptor."""
    if typing.get_origin(hint) is tuple:
        each = typing.get_args(hint)[0]
        if not is_dataclass(each):
            return _scalars
        of = _of_message(each)
        return lambda message, field: tuple(map(of, getattr(message, field.name)))
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is types.UnionType else None
    if is_dataclass(inner) or inner is dt.datetime:
        some = _of_message(inner)
        return lambda message, field: some(getattr(message, field.name)) if message.HasField(field.name) else None
    if inner in (int, float):
        return lambda message, field: _scalar(message, field) if message.HasField(field.name) else None
    return _scalar


def _of_message(kind: Any) -> Callable[[Any], Any]:
    return _time if kind is dt.datetime else lambda message: read(kind, message)


def _scalar(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    return value if field.enum_type is None else enum_name(field, value)


def _scalars(message: Any, field: Any) -> tuple[Any, ...]:
    values = getattr(message, field.name)
    return tuple(values) if field.enum_type is None else tuple(enum_name(field, value) for value in values)


def _time(stamp: Any) -> dt.datetime | None:
    """A time; None: no calendar has it."""
    try:
        since = dt.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + since
    except OverflowError:
        return None
