"""The client's results, read from the sidecar's messages.

Most results mirror the protos, and are generated (`answers.py`); this file has those that contain a prompt or a text of
the caller. All are read by the names and types of their fields, so a new field in the protos needs no line in the
client.
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
    """Masks left, as the sidecar's list does not allow this tool to get values of their kind."""
    unknown: int
    """Masks left, as the sidecar does not have their values."""
    unknown_masks: tuple[str, ...] = ()
    """These masks without duplicates; at most 100."""


@dataclass(frozen=True, slots=True)
class Trimmed(Generic[Prompt]):
    """A prompt to send to the model: trimmed, or made without the sidecar if the client failed open."""

    prompt: Prompt
    """In the shape that was given. Objects that were not trimmed are the same objects."""
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
    """Blocks of thinking that the client removed, as the provider would refuse them: the messages before them have
    changed."""
    refused: bool = False
    """Whether the provider is known to have refused it as too long."""
    fits: bool | None = None
    """Whether it is within the limit; None if it was not counted."""
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
    """The guard's findings in new messages; never the text."""
    ceilings: tuple[CeilingUse, ...] = ()
    """The configured ceilings, with their use so far."""
    observed_only: bool = False
    """Whether the sidecar only observes: the prompt is the one that was given, and the other fields say what would be
    done."""
    comparison: Comparison | None = None
    """What the run's prompts cost so far, compared with never trimming; None if the prompt is not part of the run's
    history."""
    untrimmed: str = ""
    """Why the sidecar removed nothing, as docs/untrimmed.md lists; empty if it did, or did not answer (`reason`)."""
    protected_text_leaves: int | None = None
    """Tokens of the limit that text which is never trimmed leaves, if too few for useful cuts; otherwise None."""


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
    """Return the function that reads a field of this type from a message, given the field's descriptor."""
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
    """Return a time, or None if no calendar has it."""
    try:
        since = dt.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + since
    except OverflowError:
        return None
