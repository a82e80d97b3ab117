"""The outcomes of an HTTP request that Envoy showed to the sidecar, and of its response."""

from __future__ import annotations

from enum import StrEnum


class EnvoyOutcome(StrEnum):
    """The outcomes of a request. All except the first two mean that it was forwarded unchanged."""

    ANSWERED = "answered"
    """Its body is the core's answer, trimmed or not."""
    REFUSED = "refused"
    """A guard or a ceiling refused it: the caller got an error."""
    NOT_A_PROMPT = "not_a_prompt"
    """Another path or method, or no body."""
    UNREADABLE = "unreadable"
    """Its body is compressed, signed (SigV4), or not buffered by Envoy."""
    INVALID = "invalid"
    """The core did not accept it: not JSON of its format's shape, or a value out of its bounds."""
    TOO_LARGE = "too_large"
    """A resource limit of the sidecar was reached, memory included."""
    BUSY = "busy"
    """Too many exchanges or prompts at once."""
    STOPPING = "stopping"
    """The sidecar was draining."""
    UNAUTHENTICATED = "unauthenticated"
    """Envoy did not authenticate itself although it must."""
    LATE = "late"
    """Envoy, or its client, did not wait for the answer."""
    FAILED = "failed"
    """The sidecar failed; its log has an incident."""


class MasksStay(StrEnum):
    """Why masks were left in a response to a prompt with masks, or in the rest of it."""

    ENCODED = "encoded"
    """It is compressed, although the request asked for no compression."""
    UNREADABLE = "unreadable"
    """Its content type is not one of the provider's, or its content is not of that type."""
    UNCHANGEABLE = "unchangeable"
    """Envoy does not let it be changed, or sent it in pieces although the whole was requested."""
    TOO_LONG = "too_long"
    """It has more bytes than `envoy.answer_bytes`."""
    BUSY = "busy"
    """Too many prompts and answers waited for a thread."""
    FAILED = "failed"
    """The sidecar failed; its log has the details."""
