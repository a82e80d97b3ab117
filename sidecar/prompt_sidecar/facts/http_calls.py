"""What the HTTP door tells telemetry of requests and of the calls of providers that are made for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prompt_sidecar.providers.usage import ProviderUsage

CREATED: Final = "response.create"
"""In place of a method of HTTP: a request on a WebSocket."""


CANCELLED: Final = "cancelled"
"""The error of a call whose agent has left."""
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
    """The agent has left before there was an answer."""
    CANCELLED = "cancelled"
    """It has left during the answer."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request of an agent's that has begun."""

    method: str
    """Of HTTP, or `CREATED`."""
    route: str
    """Its name in metrics."""
    scheme: str
    """`http` or `https`."""
    path: str
    """Without the query, and of APIs that are not known its shape alone; empty: it may not be told."""
    headers: Mapping[str, str]
    """Of which `traceparent` and `tracestate` are read."""


@dataclass(frozen=True, slots=True)
class AgentAnswered:
    """How such a request ended."""

    status: int
    """Of HTTP; 0: the agent got none."""
    outcome: str
    """As in the metric of requests."""
    reason: str = ""
    """Of the sidecar's own refusal, or the kind of its failure; empty: there was none."""
    hidden: int = 0
    """Turns of the model that were answered here."""
    caller: str = ""
    """Who sent it; empty: it is not known."""
    run_id: str = ""
    """Its run; empty: none that is known."""


@dataclass(frozen=True, slots=True)
class ProviderAsked:
    """A call of a provider."""

    provider: str
    """As OpenTelemetry's conventions for generative AI call it."""
    operation: str
    """As they call what is asked for."""
    route: str
    """The name of the agent's request in metrics."""
    model: str
    """The model that is asked; empty: it is not known."""
    run_id: str
    """Its run; empty: none."""
    address: str
    """The provider's host; empty: it is not known."""
    port: int
    """And its port; 0: it is not known."""
    turn: int
    """How many turns of the same answer came before."""
    compacted: bool = False
    """Whether its prompt lacks text of the conversation, or has something shorter in its place."""


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    """How such a call ended. Times in seconds."""

    status: int
    """Of HTTP; 0: there was no answer."""
    took: float
    """From the call to the end of the answer."""
    first_chunk: float | None = None
    """From the call to the first bytes of a stream; None: it was no stream, or nothing came."""
    first_byte: float | None = None
    """From the call to the headers of its answer; None: there was none."""
    usage: ProviderUsage | None = None
    """What the provider counted; None: it did not say."""
    finish: str = ""
    """Why the model stopped; empty: it is not known."""
    hidden: bool = False
    """Whether the answer was a turn that was answered here."""
    error: str = ""
    """Why it failed: a status, or a kind of error; empty: it did not."""

    @property
    def outcome(self) -> CallOutcome:
        """How it ended, in one word."""
        if self.error == CANCELLED:
            return CallOutcome.CANCELLED if self.status else CallOutcome.ABANDONED
        if not self.status:
            return CallOutcome.UNREACHABLE
        if self.status == _RATE_LIMITED:
            return CallOutcome.RATE_LIMITED
        if self.status >= _REFUSES:
            return CallOutcome.FAILED if self.status >= _FAILS else CallOutcome.REFUSED
        return CallOutcome.BROKEN_OFF if self.error else CallOutcome.ANSWERED
