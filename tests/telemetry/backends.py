"""What backends of traces read of spans, as a table: attribute, what it shows, and where our spans have it, or why not.

Sources, read on 28 November 2026:

- Tempo: grafana.com/docs/tempo, "Service graphs", "Use the metrics-generator to create metrics from spans" and
  "Trace structure" (the documentation of 3.0). Not tried.
- Phoenix: arize.com/docs/phoenix, release notes of 15 May 2026, "OTel GenAI Semantic Convention Auto-Conversion"; and
  what arize-phoenix 20.26.1 showed of a real sidecar's spans on that day.
- Langfuse: langfuse.com/integrations/native/opentelemetry, "Attribute Mapping". That `gen_ai.conversation.id` is the
  session and `gen_ai.usage.cache_creation.input_tokens` the tokens written to the cache is in its code alone
  (OtelIngestionProcessor.ts; pull requests 7738 and 13110). Not tried.

A row names one attribute; `span.…` and `resource.…` are fields of a span and of its resource that are none of its
attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.real.otlp import Span
from tests.telemetry.conventions import NOT_WRITTEN


@dataclass(frozen=True, slots=True)
class Row:
    """One attribute that a backend reads."""

    attribute: str
    shows: str
    on: tuple[str, ...] = ()
    """The tables of the conventions whose spans have it; empty: none has, for the reason in `lacks`."""
    lacks: str = ""


_CALLS: Final = ("inference",)
_TOOLS: Final = ("execute_tool",)
ALL: Final = ("http", "inference", "execute_tool", "search_memory")
"""Every kind that a request through the HTTP door has, with the opt-in."""

_VENDOR: Final = "an attribute of one vendor: use the collector to add it, if the ones above are not enough"
_NO_USER: Final = "callers are in `prompt_sidecar.caller`; only the operator knows which of them are users"
_NO_MESSAGE: Final = "an error's message may hold text; `error.type` has its kind"
_NO_COST: Final = "the sidecar's estimates are metrics; the backend has its own prices"


def _reason(attribute: str, shows: str) -> Row:
    return Row(attribute, shows, lacks=NOT_WRITTEN[attribute])


BACKENDS: Final[Mapping[str, Sequence[Row]]] = {
    "Tempo": (
        Row("resource.service.name", "service, node of the service graph", ALL),
        Row("span.name", "name, label of the metrics of spans", ALL),
        Row("span.kind", "kind; a client's and a server's span are an edge of the service graph", ALL),
        Row("span.status", "status, share of errors", ALL),
        Row("span.status_message", "why it failed", lacks=_NO_MESSAGE),
        Row("server.address", "name of the provider in the service graph, if `peer_attributes` has it", _CALLS),
        Row("gen_ai.provider.name", "the same, shorter", _CALLS),
        *(
            Row(name, "node for a service that sends no spans", lacks="a provider is no database; see `server.address`")
            for name in ("peer.service", "db.name", "db.system", "db.namespace")
        ),
    ),
    "Phoenix": (
        Row("gen_ai.operation.name", "kind of the span: LLM or tool", (*_CALLS, *_TOOLS)),
        Row("gen_ai.request.model", "model, price", _CALLS),
        Row("gen_ai.provider.name", "provider, price", _CALLS),
        Row("gen_ai.conversation.id", "session", ALL),
        Row("gen_ai.usage.input_tokens", "tokens of the prompt, cached ones included", _CALLS),
        Row("gen_ai.usage.output_tokens", "tokens of the answer", _CALLS),
        Row("gen_ai.usage.cache_read.input_tokens", "cached tokens, at their own price", _CALLS),
        Row("gen_ai.usage.cache_creation.input_tokens", "tokens written to the cache, at their own price", _CALLS),
        Row("gen_ai.response.finish_reasons", "why the model stopped", _CALLS),
        Row("gen_ai.response.model", "output, as JSON", _CALLS),
        Row("gen_ai.request.stream", "invocation parameters", _CALLS),
        Row("gen_ai.tool.name", "tool", _TOOLS),
        Row("gen_ai.tool.call.id", "the tool's call", _TOOLS),
        Row("span.status", "status, share of errors", ALL),
        Row("span.status_message", "why it failed", lacks=_NO_MESSAGE),
        _reason("gen_ai.input.messages", "input"),
        _reason("gen_ai.output.messages", "output"),
        _reason("gen_ai.system_instructions", "system message"),
        _reason("gen_ai.tool.definitions", "tools that the model has"),
        _reason("gen_ai.tool.description", "description of a tool"),
        _reason("gen_ai.tool.call.arguments", "parameters of a tool's call"),
        _reason("gen_ai.tool.call.result", "output of a tool"),
        _reason("gen_ai.response.id", "output, as JSON"),
        _reason("gen_ai.request.max_tokens", "invocation parameters"),
        _reason("gen_ai.request.temperature", "invocation parameters"),
        Row("openinference.span.kind", "kind of the span", lacks=_VENDOR),
        Row("session.id", "session", lacks=_VENDOR),
        Row("user.id", "user", lacks=_NO_USER),
    ),
    "Langfuse": (
        Row("gen_ai.operation.name", "type: generation or tool", (*_CALLS, *_TOOLS)),
        Row("gen_ai.request.model", "model, price, parameters", _CALLS),
        Row("gen_ai.response.model", "model, before the one that was asked for", _CALLS),
        Row("gen_ai.request.stream", "parameters", _CALLS),
        Row("gen_ai.usage.input_tokens", "usage, less the cached ones", _CALLS),
        Row("gen_ai.usage.output_tokens", "usage", _CALLS),
        Row("gen_ai.usage.cache_read.input_tokens", "usage: cached tokens", _CALLS),
        Row("gen_ai.usage.cache_creation.input_tokens", "usage: tokens written to the cache", _CALLS),
        Row("gen_ai.conversation.id", "session", ALL),
        Row("gen_ai.tool.name", "type: tool", _TOOLS),
        Row("span.name", "name; of the first span, that of the trace", ALL),
        Row("span.status", "level", ALL),
        Row("resource.service.name", "metadata", ALL),
        Row("span.status_message", "message of the status", lacks=_NO_MESSAGE),
        Row("gen_ai.usage.cost", "cost", lacks=_NO_COST),
        Row("gen_ai.prompt", "input", lacks=NOT_WRITTEN["gen_ai.input.messages"]),
        Row("gen_ai.completion", "output", lacks=NOT_WRITTEN["gen_ai.output.messages"]),
        Row("user.id", "user", lacks=_NO_USER),
        *(
            Row(name, shows, lacks=_VENDOR)
            for name, shows in (
                ("session.id", "session"),
                ("langfuse.session.id", "session"),
                ("langfuse.trace.name", "name of the trace"),
                ("langfuse.observation.type", "type"),
                ("langfuse.observation.completion_start_time", "time to the first token"),
                ("langfuse.release", "release"),
                ("langfuse.trace.tags", "tags"),
            )
        ),
    ),
}
OF_MODELS: Final = frozenset({"gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "model"})
"""Attributes by any of which Phoenix or Langfuse takes a span for a call of a model, if no operation says otherwise."""


def has(span: Span, attribute: str) -> bool:
    """Whether a span has a row's attribute."""
    fields: dict[str, Any] = {
        "resource.service.name": span.service,
        "span.name": span.name,
        "span.kind": span.kind,
        "span.status": span.status,
        "span.status_message": span.message,
    }
    return bool(fields[attribute]) if attribute in fields else attribute in span.attributes
