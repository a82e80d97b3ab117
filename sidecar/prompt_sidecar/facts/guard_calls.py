"""What the guard found, and what an agent asks of it, as plain data. See guard.proto for what the names mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class FindingAction(StrEnum):
    """What was done about a finding."""

    OBSERVED = "observed"
    MASKED = "masked"
    DEFANGED = "defanged"


UNANSWERED_CALL: Final = "unanswered_call"
"""The rule of findings about the history itself: calls without results, though it goes on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in one item; never the text."""

    rule: str
    action: FindingAction
    message_index: int
    """In the run's untrimmed history; -1: outside it."""
    item_index: int
    """-1: in no item."""
    count: int


class SendingDoor(StrEnum):
    """What sends requests on, or tells a gateway what to send."""

    HTTP = "http"
    WEBSOCKET = "websocket"
    ENVOY = "envoy"
    GATEWAY = "gateway"


class Unread(StrEnum):
    """Why the guard cannot read what a door would send on."""

    NOT_JSON = "not_json"
    """A form with files, a form, text, or binary data."""
    ENCODED = "encoded"
    """Its content encoding or character set is not known, or it is damaged."""
    TOO_LARGE = "too_large"
    """It has more bytes, or more small values, than are read."""
    SIGNED = "signed"
    """It can be read, but a signature over the whole body forbids to mask what was found in it."""
    BINARY = "binary"
    """A message of a WebSocket that is no JSON."""
    UNBUFFERED = "unbuffered"
    """Envoy does not give the whole of it."""
    FAILED = "failed"
    """The sidecar was stopping, busy or late, or it failed: the request may be tried again."""


class UnreadOutcome(StrEnum):
    """The outcome, by `guard.unread`."""

    REFUSED = "refused"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class MaskCall:
    """A body in which strings are to be masked one by one, as it is no prompt that is trimmed."""

    caller: str
    body: bytes
    """JSON, or lines of JSON."""
    run_id: str = ""
    """Whose masks are used; empty: no run's."""
    format: str = ""
    """Of the body, if its members are known: those that the provider needs are then observed. Empty: all strings are
    masked."""


@dataclass(frozen=True, slots=True)
class MaskAnswer:
    """A body with masks."""

    body: bytes
    """The same object if nothing was masked."""
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """The arguments of a tool call as the model wrote them: JSON."""

    tool: str
    arguments: bytes


@dataclass(frozen=True, slots=True)
class RestoreCall:
    """Tool calls whose masks are to be replaced by values."""

    caller: str
    run_id: str
    calls: Sequence[ToolArguments]


@dataclass(frozen=True, slots=True)
class RestoredArguments:
    """One call's arguments with values in place of masks, and how many masks were and were not replaced."""

    arguments: bytes
    restored: int = 0
    not_allowed: int = 0
    unknown: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Of those that were replaced, how many of each kind."""
    unknown_masks: Sequence[str] = ()
    """Those whose value is not known, each once."""
