"""What the HTTP door reports to telemetry about requests and about the provider calls made for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prompt_sidecar.providers.usage import ProviderUsage

CREATED: Final = "response.create"
"""In place of an HTTP method: a request on a WebSocket."""


CANCELLED: Final = "cancelled"
"""The error of a call whose agent has disconnected."""
_RATE_LIMITED: Final = 429
_REFUSES: Final = 400
_FAILS: Final = 500


class CallOutcome(StrEnum):
    """How a call of a provider ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    RATE_LIMITED = "rate_limited"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    """There was no answer."""
    BROKEN_OFF = "broken_off"
    """The answer had no end, or could not be read."""
    ABANDONED = "abandoned"
    """The agent disconnected before there was an answer."""
    CANCELLED = "cancelled"
    """The agent disconnected during the answer."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request of an agent at its beginning."""

    method: str
    """The HTTP method, or `CREATED`."""
    route: str
    """Its route's name in metrics."""
    scheme: str
    """`http` or `https`."""
    path: str
    """The path without the query, for unknown APIs only its shape; empty if it may not be exported."""
    headers: Mapping[str, str]
    """Headers, of which `traceparent` and `tracestate` are read."""


@dataclass(frozen=True, slots=True)
class AgentAnswered:
    """How such a request ended."""

    status: int
    """HTTP status; 0 if the agent got none."""
    outcome: str
    """As in the metric of requests."""
    reason: str = ""
    """The reason of the sidecar's own refusal, or the kind of its failure; empty if there was none."""
    hidden: int = 0
    """Number of the model's turns that were answered by the sidecar."""
    caller: str = ""
    """The caller; empty if unknown."""
    run_id: str = ""
    """The run id; empty if unknown."""


@dataclass(frozen=True, slots=True)
class ProviderAsked:
    """A call of a provider."""

    provider: str
    """The provider's name in OpenTelemetry's conventions for generative AI."""
    operation: str
    """The operation's name in these conventions."""
    route: str
    """The route name of the agent's request in metrics."""
    model: str
    """The requested model; empty if unknown."""
    run_id: str
    """The run id; empty if there is none."""
    address: str
    """The provider's host; empty if unknown."""
    port: int
    """The provider's port; 0 if unknown."""
    turn: int
    """Number of earlier turns of the same answer."""
    compacted: bool = False
    """Whether its prompt lacks text of the conversation, or has something shorter in its place."""
    cached_apart: bool = False
    """Whether the provider counts cached tokens next to the input's, and not as a part of them."""


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    """How such a call ended. Times in seconds."""

    status: int
    """HTTP status; 0 if there was no answer."""
    took: float
    """Time from the call to the end of the answer."""
    first_chunk: float | None = None
    """Time from the call to the first bytes of a stream; None if it was not a stream, or nothing was received."""
    first_byte: float | None = None
    """Time from the call to the headers of its answer; None if there was none."""
    usage: ProviderUsage | None = None
    """The provider's counts; None if not reported."""
    finish: str = ""
    """Why the model stopped; empty if unknown."""
    hidden: bool = False
    """Whether the answer was a turn that the sidecar answered."""
    error: str = ""
    """Why it failed: a status, or a kind of error; empty: it did not."""
    input_tokens: int | None = None
    """The prompt's tokens, cached ones included, whether or not the provider's own count includes them."""

    @property
    def outcome(self) -> CallOutcome:
        """How the call ended, in one word."""
        if self.error == CANCELLED:
            return CallOutcome.CANCELLED if self.status else CallOutcome.ABANDONED
        if not self.status:
            return CallOutcome.UNREACHABLE
        if self.status == _RATE_LIMITED:
            return CallOutcome.RATE_LIMITED
        if self.status >= _REFUSES:
            return CallOutcome.FAILED if self.status >= _FAILS else CallOutcome.REFUSED
        return CallOutcome.BROKEN_OFF if self.error else CallOutcome.ANSWERED
