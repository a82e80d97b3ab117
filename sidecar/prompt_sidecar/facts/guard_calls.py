"""What the guard found, and what an agent requests from it, as plain data.

See guard.proto for the meaning of the names.
"""

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
"""The rule of findings about the history itself: calls without results in a history that goes on after them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A find of a rule in one item; never the text."""

    rule: str
    action: FindingAction
    message_index: int
    """Index in the run's untrimmed history; -1 outside it."""
    item_index: int
    """-1 if it is in no item."""
    count: int


class SendingDoor(StrEnum):
    """What forwards requests, or instructs a gateway what to forward."""

    HTTP = "http"
    WEBSOCKET = "websocket"
    ENVOY = "envoy"
    GATEWAY = "gateway"


class Unread(StrEnum):
    """Why the guard cannot read what a door is about to forward."""

    NOT_JSON = "not_json"
    """A multipart form, a form, text, or binary data."""
    ENCODED = "encoded"
    """Its content encoding or character set is unknown, or it is damaged."""
    TOO_LARGE = "too_large"
    """It has more bytes, or more small values, than are read."""
    SIGNED = "signed"
    """It can be read, but a signature over the whole body forbids masking what was found."""
    BINARY = "binary"
    """A WebSocket message that is not JSON."""
    UNBUFFERED = "unbuffered"
    """Envoy does not send the whole of it."""
    FAILED = "failed"
    """The sidecar was stopping, busy or late, or it failed: the request may be retried."""


class UnreadOutcome(StrEnum):
    """What is done then, by `guard.unread`."""

    REFUSED = "refused"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class MaskCall:
    """A body whose strings are masked one by one, as it is not a prompt that is trimmed."""

    caller: str
    body: bytes
    """JSON, or lines of JSON."""
    run_id: str = ""
    """The run whose masks are used; empty: no run's."""
    format: str = ""
    """The body's format, if its members are known: strings that the provider needs are then only observed. Empty: all
    strings are masked."""


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
    may_wait: bool = True
    """Whether the archive may be asked, and waited for, for values that this process does not have."""


@dataclass(frozen=True, slots=True)
class RestoredArguments:
    """One call's arguments with values in place of masks, and the numbers of masks that were and were not replaced."""

    arguments: bytes
    restored: int = 0
    not_allowed: int = 0
    unknown: int = 0
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many replaced masks there were of each kind."""
    unknown_masks: Sequence[str] = ()
    """Masks whose value is not known, each once."""


@dataclass(frozen=True, slots=True)
class RestoreAnswer:
    """The calls of a `RestoreCall`, in their order."""

    calls: Sequence[RestoredArguments]
    store_unavailable: bool = False
    """Whether the archive keeps values and did not answer, so the same call may fill more masks later."""
