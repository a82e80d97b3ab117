"""What a call of a provider counts and records: our own figures, and those of OpenTelemetry's conventions.

The names of the latter are those of semantic conventions 1.44.0, the schema of resource and scope (`spans.SCHEMA`). The
conventions for generative AI have moved to a repository of their own, whose first release, 0.1.0, names the same
figures `gen_ai.client.inference.*`; it is in development, and backends use the names here. `server.address` and
`server.port` are omitted, as the settings have one address for each provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final

from prompt_sidecar.facts.http_calls import AgentAnswered, AgentRequest, CallOutcome, ProviderAnswered, ProviderAsked
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import HTTP_ROUTES, OTHER, ROUTES_OF_PROVIDERS, Metric
from prompt_sidecar.telemetry.labels import ModelNames
from prompt_sidecar.telemetry.spans import METHODS, UNKNOWN_METHOD
from prompt_sidecar.telemetry.tallies import Change, Values

Recorded = tuple[Metric, float, Values]

_OVERLOADED: Final = "529"
"""The status by which Anthropic reports overload (platform.claude.com, "Errors", 2026-11)."""
UNKNOWN_ERROR: Final = "_OTHER"
"""The conventions' name of an error that has none."""
ERRORS: Final = frozenset(
    {
        *(str(status.value) for status in HTTPStatus if status.value >= HTTPStatus.BAD_REQUEST),
        _OVERLOADED,
        "ClientConnectionResetError",
        "ClientConnectorCertificateError",
        "ClientConnectorDNSError",
        "ClientConnectorError",
        "ClientConnectorSSLError",
        "ClientOSError",
        "ClientPayloadError",
        "ClientResponseError",
        "ConnectionTimeoutError",
        "ServerDisconnectedError",
        "SocketTimeoutError",
        "TimeoutError",
        "TooLongAnswer",
        "cancelled",
        "failed",
        "upstream_failed",
    }
)
"""Errors of calls that have a label of their own: statuses, kinds of aiohttp's errors, and words of the HTTP door."""
_STATUSES: Final = frozenset(status.value for status in HTTPStatus) | {int(_OVERLOADED)}
_FAULTS: Final = HTTPStatus.INTERNAL_SERVER_ERROR.value
"""The first status that makes a request an error, by the conventions for HTTP."""


def error_label(error: str) -> str:
    """Return the label of an error; empty if there was none."""
    return error if error in ERRORS or not error else UNKNOWN_ERROR


def counted(asked: ProviderAsked, answered: ProviderAnswered) -> list[Change]:
    """Return the changes for a finished call of a provider."""
    return [(catalog.PROVIDER_CALLS, (_route(asked), answered.outcome.value, _turn(answered)), 1)]


def recorded(asked: ProviderAsked, answered: ProviderAnswered, models: ModelNames) -> Iterator[Recorded]:
    """Yield the histogram values of such a call."""
    ours, outcome = (_route(asked), _turn(answered)), answered.outcome
    first = answered.first_chunk if answered.first_chunk is not None else answered.first_byte
    if outcome is CallOutcome.ABANDONED:
        first = answered.took
    if first is not None and outcome is not CallOutcome.UNREACHABLE:
        yield catalog.PROVIDER_FIRST_BYTE, first, ours
    if outcome is CallOutcome.ANSWERED:
        yield catalog.PROVIDER_DURATION, answered.took, ours
    usage = answered.usage
    named = models.label(usage.model) if usage is not None and usage.model else ""
    genai = (*_genai(asked, models), named)
    yield catalog.GENAI_DURATION, answered.took, (*genai, error_label(answered.error))
    if answered.first_chunk is not None:
        yield catalog.GENAI_FIRST_CHUNK, answered.first_chunk, genai
    if answered.input_tokens is not None:
        yield catalog.GENAI_TOKENS, answered.input_tokens, (*genai, "input")
    if usage is not None and usage.output_tokens is not None:
        yield catalog.GENAI_TOKENS, usage.output_tokens, (*genai, "output")


def streamed(asked: ProviderAsked, gaps: Sequence[float], models: ModelNames) -> list[Recorded]:
    """Return the values of the times between pieces of a stream."""
    labels = _genai(asked, models)
    return [(catalog.GENAI_OUTPUT_CHUNK, gap, labels) for gap in gaps]


def served(request: AgentRequest, answered: AgentAnswered, seconds: float) -> Recorded:
    """Return the time of an agent's request."""
    method = request.method if request.method in METHODS else UNKNOWN_METHOD
    error = str(answered.status) if answered.status >= _FAULTS else ""
    if not answered.status:
        error = answered.outcome or UNKNOWN_ERROR
    status = str(answered.status) if answered.status in _STATUSES else ""
    route = request.route if request.route in HTTP_ROUTES else OTHER
    return catalog.HTTP_SERVER_DURATION, seconds, (method, request.scheme, status, error_label(error), route)


def _genai(asked: ProviderAsked, models: ModelNames) -> Values:
    return asked.operation, asked.provider, models.label(asked.model)


def _route(asked: ProviderAsked) -> str:
    return asked.route if asked.route in ROUTES_OF_PROVIDERS else OTHER


def _turn(answered: ProviderAnswered) -> str:
    return "hidden" if answered.hidden else "shown"
