"""The outcome of an HTTP request that Envoy showed to the sidecar."""

from __future__ import annotations

from enum import StrEnum


class EnvoyOutcome(StrEnum):
    """All but the first two went on as they came."""

    ANSWERED = "answered"
    """Its body is the core's answer, trimmed or not."""
    REFUSED = "refused"
    """A guard or a ceiling refused it: the caller got an error."""
    NOT_A_PROMPT = "not_a_prompt"
    """Another path or method, or no body."""
    UNREADABLE = "unreadable"
    """Its body is compressed, signed (SigV4), or not buffered by Envoy."""
    INVALID = "invalid"
    """The core did not accept it: no JSON of its format's shape, or a value out of its bounds."""
    TOO_LARGE = "too_large"
    """A resource limit of the sidecar was reached, memory included."""
    BUSY = "busy"
    """Too many exchanges or prompts at once."""
    STOPPING = "stopping"
    """The sidecar was draining."""
    UNAUTHENTICATED = "unauthenticated"
    """Envoy did not authenticate itself where it must."""
    LATE = "late"
    """Envoy, or its client, did not wait for the answer."""
    FAILED = "failed"
    """The sidecar failed; its log has an incident."""
