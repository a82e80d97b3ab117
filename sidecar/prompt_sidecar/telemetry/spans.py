"""Spans: one for each call of the service, within the agent's trace, which also says what the call did.

A request through the HTTP door has a span too, within the agent's trace, with its work in child spans: the prompt as
`trim`, calls of the sidecar's tools, and each call of the provider (OpenTelemetry's conventions for HTTP, and for
generative AI: `SCHEMA`). It is the current span of the request's context (`contextvars`), also in worker threads.

Spans hold numbers, words of closed sets, the run's id and ids of originals; never text of a prompt or of a model. They
follow OpenTelemetry's conventions for RPC; by these a span's status is an error only if the server is at fault. The
result of a call is written when its work is done, from the core's facts; a prompt through another door than gRPC has no
span of a call, and so gets one of its own.

Without an exporter there are no spans at all: `on` is false, and no work is spent on them. If the span of a call is
sampled out, nothing is written to it.

OpenTelemetry's conventions for generative AI have names for some of this. They are still changing, so spans follow them
only if the operator opts in (`GENAI_OPT_IN`), in addition to our own names. docs/telemetry.md has both side by side.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from prompt_sidecar.facts.guard_calls import RestoredArguments
from prompt_sidecar.facts.http_calls import CREATED, AgentAnswered, AgentRequest, ProviderAnswered, ProviderAsked
from prompt_sidecar.facts.recall_calls import RetrieveAnswer
from prompt_sidecar.facts.tool_calls import ToolCall
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.recall.found import SearchResult
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.telemetry import changes
from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.telemetry.distributions import Ids

FAULTS: Final = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Statuses that make a server's span an error. Source: OpenTelemetry's semantic conventions for gRPC."""
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The schema of resource and spans: the newest of OpenTelemetry's that its package for Python has. The conventions for
generative AI have a repository and versions of their own (open-telemetry/semantic-conventions-genai); the names here
are those of its first release, 0.1.0, which has no schema at an address that a backend could fetch."""
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"})
"""Methods of HTTP that have a name in spans; any other is `UNKNOWN_METHOD`."""
MOST_PATH: Final = 256
"""Characters of a path in a span; longer ones are cut."""
_ERRORS: Final = 500
"""The first status of HTTP that makes a server's span an error."""
_BROKEN: Final = frozenset({"failed", "upstream_failed"})
"""Outcomes of requests that make a span an error, whatever status was sent before."""
UNKNOWN_METHOD: Final = "_OTHER"
"""The conventions' name of an unknown method; its span is then named after the system."""
BATCH: Final = "prompt_sidecar.batch"
"""The event of a batch of trims."""
FINDING: Final = "prompt_sidecar.finding"
"""The event of a find of the guard's rules; there is one for each rule and action."""
GENAI_OPT_IN: Final = "gen_ai_latest_experimental"
"""The value of OTEL_SEMCONV_STABILITY_OPT_IN with which spans follow the conventions for generative AI."""
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
"""Only ever true, by the convention."""
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
"""On calls of models alone: backends take any other span that has it for one too. A prompt has `PROMPT_MODEL`."""
PROMPT_MODEL: Final = "prompt_sidecar.prompt.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
STREAM: Final = "gen_ai.request.stream"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""Cached tokens are included, by the convention."""
FINISH: Final = "gen_ai.response.finish_reasons"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The same number under the name of the conventions until 1.41, which is the one that Phoenix and Langfuse price it by
(docs/telemetry.md)."""
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
MEMORY_STORE: Final = "gen_ai.memory.store.id"
"""A run's history is the store that is searched, so this is the run's id."""
MEMORY_RECORDS: Final = "gen_ai.memory.record.count"
EXECUTE_TOOL: Final = "execute_tool"
SEARCH_MEMORY: Final = "search_memory"
MOST_IDS: Final = 64
"""Most stash ids in one event: more than in the registry."""
_MINTED: Final = frozenset({Outcome.HIT, Outcome.EXPIRED, Outcome.EVICTED})
"""Outcomes for ids that the sidecar made. Any other requested id may be arbitrary text."""
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""An id of a call as providers make it: anything else may be arbitrary text."""
_CARRIED: Final = frozenset({"traceparent", "tracestate"})

_propagator: Final = TraceContextTextMapPropagator()

_Token = Any
"""What `context.attach` returns."""
Attributes = Mapping[str, AttributeValue]
_Event = tuple[str, Attributes]


class Spans:
    """Writes spans with a tracer, or none if the tracer is None. Thread-safe."""

    def __init__(self, tracer: Tracer | None, *, genai: bool = False) -> None:
        """`genai`: whether to follow OpenTelemetry's conventions for generative AI as well."""
        self._tracer = tracer
        self._genai = genai
        self._of_thread = threading.local()

    @property
    def exported(self) -> Ids | None:
        """Return the ids of this thread's call, if its span is exported: for exemplars."""
        ids: Ids | None = getattr(self._of_thread, "ids", None)
        return ids

    @property
    def on(self) -> bool:
        """Whether spans are exported."""
        return self._tracer is not None

    def begin(self, method: str, metadata: Iterable[Any], ago: float) -> object:
        """Begin a call's span in its agent's trace, and make it the thread's current one.

        Args:
            method: `package.Service/Method`; empty for an unknown method.
            metadata: the call's metadata.
            ago: seconds since the call arrived.
        """
        assert self._tracer is not None
        span = self._tracer.start_span(
            method or "grpc",
            remote(metadata),
            SpanKind.SERVER,
            {"rpc.system.name": "grpc", "rpc.method": method or UNKNOWN_METHOD},
            start_time=time.time_ns() - int(ago * 1e9),
        )
        self._of_thread.call = span
        if span.is_recording():
            own = span.get_span_context()
            self._of_thread.ids = own.trace_id, own.span_id
        return span, context.attach(trace.set_span_in_context(span))

    def begin_request(self, request: AgentRequest) -> object:
        """Begin the span of a request through the HTTP door, in its agent's trace; it becomes the current one.

        On a WebSocket it is the span of one message, to which the conventions for HTTP do not apply.
        """
        assert self._tracer is not None
        attributes: dict[str, AttributeValue] = {"prompt_sidecar.http.route": request.route}
        method = request.method if request.method in METHODS else "HTTP"
        if request.method == CREATED:
            method = CREATED
        else:
            attributes["http.request.method"] = UNKNOWN_METHOD if method == "HTTP" else method
            attributes["url.scheme"] = request.scheme
        if request.path:
            attributes["url.path"] = request.path[:MOST_PATH]
        carrier = {name: value for name in _CARRIED if (value := request.headers.get(name)) is not None}
        parent = _propagator.extract(carrier, Context())
        span = self._tracer.start_span(f"{method} {request.route}", parent, SpanKind.SERVER, attributes)
        return span, context.attach(trace.set_span_in_context(span))

    def end_request(self, begun: object, answered: AgentAnswered) -> None:
        """End it, in the same context."""
        assert isinstance(begun, tuple)
        span: Span = begun[0]
        attributes: dict[str, AttributeValue] = {
            "prompt_sidecar.http.outcome": answered.outcome,
            "prompt_sidecar.http.hidden_turns": answered.hidden,
        }
        if answered.status:
            attributes["http.response.status_code"] = answered.status
        if answered.caller:
            attributes["prompt_sidecar.caller"] = answered.caller
        if answered.run_id:
            attributes |= self._of_run(answered.run_id)
        failed = answered.status >= _ERRORS or answered.outcome in _BROKEN
        if failed or answered.reason or answered.outcome == "cancelled":
            status = str(answered.status) if answered.status >= _ERRORS else answered.outcome
            attributes["error.type"] = answered.reason or status
        span.set_attributes(attributes)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        context.detach(begun[1])

    def ask_provider(self, asked: ProviderAsked, model: str, began: int) -> Span | None:
        """Begin the span of a call of a provider. Returns None if it is sampled out.

        The conventions for generative AI are always followed here, as these spans never had other names.

        Args:
            asked: the call.
            model: the model's name if it may be exported, else empty.
            began: when it began, in nanoseconds since the epoch.
        """
        if self._sampled_out():
            return None
        assert self._tracer is not None
        attributes: dict[str, AttributeValue] = {
            OPERATION: asked.operation,
            PROVIDER: asked.provider,
            "prompt_sidecar.http.turn": asked.turn,
        }
        if model:
            attributes[REQUEST_MODEL] = model
        if asked.run_id:
            attributes["prompt_sidecar.run.id"] = attributes[CONVERSATION] = asked.run_id
        if asked.compacted:
            attributes[COMPACTED] = True
        if asked.address:
            attributes["server.address"] = asked.address
        if asked.port:
            attributes["server.port"] = asked.port
        name = f"{asked.operation} {model}".rstrip()
        return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, start_time=began)

    @staticmethod
    def provider_answered(span: Span, answered: ProviderAnswered, model: str, began: int) -> None:
        """End the span of a provider's call; `model` is the one that answered, and `began` as for `ask_provider`."""
        attributes: dict[str, AttributeValue] = {"prompt_sidecar.http.hidden": answered.hidden}
        if answered.status:
            attributes["http.response.status_code"] = answered.status
        if answered.first_chunk is not None:
            attributes[STREAM] = True
            attributes[FIRST_CHUNK] = answered.first_chunk
        if model:
            attributes[RESPONSE_MODEL] = model
        if answered.finish:
            attributes[FINISH] = (answered.finish,)
        if (usage := answered.usage) is not None:
            counts = {
                INPUT_TOKENS: answered.input_tokens,
                OUTPUT_TOKENS: usage.output_tokens,
                CACHE_READ_TOKENS: usage.cached_tokens,
                CACHE_WRITE_TOKENS: usage.cache_write_tokens,
                CACHE_CREATION_TOKENS: usage.cache_write_tokens,
            }
            attributes.update({name: count for name, count in counts.items() if count is not None})
        if answered.error:
            attributes["error.type"] = answered.error
            span.set_status(Status(StatusCode.ERROR))
        span.set_attributes(attributes)
        span.end(began + int(answered.took * 1e9))

    def end(self, begun: object, code: str) -> None:
        """End a call's span with its status."""
        assert isinstance(begun, tuple)
        self._of_thread.call = self._of_thread.ids = None
        span: Span = begun[0]
        token: _Token = begun[1]
        span.set_attribute("rpc.response.status_code", code)
        if code != "OK":
            span.set_attribute("error.type", code)
        if code in FAULTS:
            span.set_status(Status(StatusCode.ERROR))
        span.end()
        context.detach(token)

    def trimmed(self, call: TrimCall, answer: TrimAnswer, model: str, began: int) -> None:
        """Write the outcome of a prompt."""
        if self._sampled_out():
            return
        tokens, cache, news = answer.tokens, answer.cache, answer.news
        attributes = self._of_run(call.run_id) | {
            "prompt_sidecar.prompt.format": call.format,
            "prompt_sidecar.prompt.outcome": changes.aside(call) or changes.outcome(answer),
            "prompt_sidecar.prompt.iteration": answer.iteration,
            "prompt_sidecar.prompt.tokens.before": tokens.before,
            "prompt_sidecar.prompt.tokens.after": tokens.after,
            "prompt_sidecar.prompt.tokens.limit": tokens.limit,
            "prompt_sidecar.own_text.tokens": tokens.own_text,
            "prompt_sidecar.prefix.tokens.kept": cache.kept,
            "prompt_sidecar.prefix.tokens.rewritten": cache.rewritten,
            "prompt_sidecar.trims": len(answer.trimmed.cuts),
            "prompt_sidecar.trims.new": len(news.cuts),
        }
        if news.condensed:
            attributes["prompt_sidecar.condensed.tokens"] = sum(news.condensed.values())
        if call.caller:
            attributes["prompt_sidecar.caller"] = call.caller
        if model != OTHER:
            attributes[PROMPT_MODEL] = model
        if tokens.ceiling:
            attributes["prompt_sidecar.prompt.tokens.ceiling"] = tokens.ceiling
        if answer.no_fit is not None:
            attributes["prompt_sidecar.unfit.reason"] = answer.no_fit.value
        if self._genai and answer.trimmed.hides:
            attributes[COMPACTED] = True
        if news.cache_break is not None:
            attributes["prompt_sidecar.cache.break.cause"] = news.cache_break.value
        self._write("trim", began, attributes, _events(answer))

    def restored(self, run_id: str, calls: Sequence[RestoredArguments], began: int) -> None:
        """Write that values were restored."""
        if self._sampled_out():
            return
        attributes = self._of_run(run_id) | {
            "prompt_sidecar.guard.calls": len(calls),
            "prompt_sidecar.guard.restored": sum(call.restored for call in calls),
            "prompt_sidecar.guard.not_allowed": sum(call.not_allowed for call in calls),
            "prompt_sidecar.guard.unknown": sum(call.unknown for call in calls),
        }
        self._write("restore", began, attributes)

    def retrieved(self, run_id: str, stash_id: str, answer: RetrieveAnswer, via: str, began: int) -> None:
        """Write a retrieval."""
        if self._sampled_out():
            return
        attributes = self._of_run(run_id) | {
            "prompt_sidecar.retrieval.outcome": answer.outcome.value,
            "prompt_sidecar.via": via,
            "prompt_sidecar.retrieval.bytes": len(answer.page.content),
            "prompt_sidecar.retrieval.total_bytes": answer.page.total_bytes,
            "prompt_sidecar.retrieval.tokens": answer.page.content_tokens,
            "prompt_sidecar.retrieval.more": answer.page.more,
        }
        if stash_id and answer.outcome in _MINTED:
            attributes["prompt_sidecar.stash.id"] = stash_id
        self._write("retrieve", began, attributes)

    def searched(self, run_id: str, found: SearchResult, via: str, began: int) -> None:
        """Write a search. The conventions for generative AI want a span of its own for it."""
        if self._sampled_out():
            return
        attributes = self._of_run(run_id) | {
            "prompt_sidecar.search.outcome": found.outcome.value,
            "prompt_sidecar.via": via,
            "prompt_sidecar.search.snippets": len(found.snippets),
            "prompt_sidecar.search.in_prompt": len(found.in_prompt),
            "prompt_sidecar.search.matching_items": found.matching_items,
            "prompt_sidecar.search.tokens": found.rendered_tokens,
            "prompt_sidecar.search.gone_items": found.gone_items,
            "prompt_sidecar.search.not_indexed_items": found.not_indexed_items,
            "prompt_sidecar.stash.ids": tuple(snippet.item.stash_id for snippet in found.snippets),
        }
        if self._genai:
            of_memory: Attributes = {
                OPERATION: SEARCH_MEMORY,
                MEMORY_STORE: run_id,
                MEMORY_RECORDS: len(found.snippets),
            }
            self._start(SEARCH_MEMORY, began, {**attributes, **of_memory}).end()
        else:
            self._write("search", began, attributes)

    @contextmanager
    def tool(self, call: ToolCall, name: str, error: str, began: int) -> Iterator[None]:
        """Write the span of a call of one of the model's tools; what is written within the context goes to it.

        Only if the conventions for generative AI are followed; otherwise everything goes to the span of the RPC.

        Args:
            call: the call.
            name: the tool's name, `other` if the sidecar does not have it.
            error: why it did nothing; empty if it succeeded.
            began: when the call began, in nanoseconds since the epoch.
        """
        if self._tracer is None or not self._genai or self._sampled_out():
            yield
            return
        attributes = self._of_run(call.run_id) | {OPERATION: EXECUTE_TOOL, TOOL_NAME: name, TOOL_TYPE: "function"}
        if _CALL_ID.fullmatch(call.call_id):
            attributes[TOOL_CALL] = call.call_id
        if error:
            attributes["error.type"] = error
        span = self._start(f"{EXECUTE_TOOL} {name}", began, attributes)
        if error:
            span.set_status(Status(StatusCode.ERROR))
        of_call, self._of_thread.call = self._call(), span
        try:
            with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
                yield
        finally:
            self._of_thread.call = of_call

    def _of_run(self, run_id: str) -> dict[str, AttributeValue]:
        """Return the attributes of a call's run."""
        attributes: dict[str, AttributeValue] = {"prompt_sidecar.run.id": run_id}
        if self._genai:
            attributes[CONVERSATION] = run_id
        return attributes

    def _sampled_out(self) -> bool:
        """Whether the current call or request has a span that is not exported."""
        current = trace.get_current_span()
        return current.get_span_context().is_valid and not current.is_recording()

    def _call(self) -> Span | None:
        """Return the span of this thread's call."""
        span: Span | None = getattr(self._of_thread, "call", None)
        return span

    def _write(self, name: str, began: int, attributes: Attributes, events: Iterable[_Event] = ()) -> None:
        """Write to the span of this thread's call, or if it has none, to a new one."""
        call = self._call()
        span = call or self._start(name, began, {})
        span.set_attributes(attributes)
        for event, of_event in events:
            span.add_event(event, of_event)
        if call is None:
            span.end()

    def _start(self, name: str, began: int, attributes: Attributes) -> Span:
        assert self._tracer is not None
        return self._tracer.start_span(name, attributes=attributes, start_time=began)


def _events(answer: TrimAnswer) -> Iterator[_Event]:
    """Yield the events of a prompt: its batch, if it has one, and finds of rules."""
    trims = answer.news.cuts
    if trims:
        yield (
            BATCH,
            {
                "prompt_sidecar.batch.items": len(trims),
                "prompt_sidecar.batch.tokens": sum(trim.tokens_saved for trim in trims),
                "prompt_sidecar.batch.batch_point": answer.cache.batch_point,
                "prompt_sidecar.batch.reasons": tuple(sorted({trim.reason.value for trim in trims})),
                "prompt_sidecar.stash.ids": tuple(trim.stash_id for trim in trims[:MOST_IDS] if trim.stash_id),
            },
        )
    found: Counter[tuple[str, str]] = Counter()
    for finding in answer.guard.findings:
        found[changes.rule_label(finding.rule), finding.action.value] += finding.count
    for (rule, action), count in found.items():
        what: Attributes = {
            "prompt_sidecar.guard.rule": rule,
            "prompt_sidecar.guard.action": action,
            "prompt_sidecar.guard.count": count,
        }
        yield FINDING, what


def current_ids() -> tuple[str, str] | None:
    """Return the current thread's trace id and span id, in hex; None without a span."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return f"{found.trace_id:032x}", f"{found.span_id:016x}"


def ids_of(span: Span) -> Ids | None:
    """Return the ids of a span, for exemplars; None if it is not exported."""
    own = span.get_span_context()
    return (own.trace_id, own.span_id) if span.is_recording() else None


def traceparent() -> str:
    """Return the current span's context as W3C's header; empty without a span."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent", "")


def remote(metadata: Iterable[Any]) -> Context:
    """Return the agent's trace context, from its call's metadata."""
    carrier = {key: value for key, value in metadata if key in _CARRIED and isinstance(value, str)}
    return _propagator.extract(carrier, Context())
