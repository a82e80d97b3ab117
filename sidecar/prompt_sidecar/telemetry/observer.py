"""The events that the server reports about its calls: one method for each kind, with the core's own facts.

`Observer` ignores them: a server without telemetry still reports, at the cost of calling empty methods. `Telemetry`
translates them into metrics and spans.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from time import perf_counter, time_ns
from typing import Any, ParamSpec

from opentelemetry.trace import use_span

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome, MasksStay
from prompt_sidecar.facts.guard_calls import (
    MaskAnswer,
    RestoreCall,
    RestoredArguments,
    SendingDoor,
    Unread,
    UnreadOutcome,
)
from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.facts.http_calls import AgentAnswered, AgentRequest, ProviderAnswered, ProviderAsked
from prompt_sidecar.facts.log_lines import members, run_digest
from prompt_sidecar.facts.recall_calls import RetrieveAnswer, RetrieveCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall
from prompt_sidecar.facts.totals import ProcessCpu, ProcessMemory, Totals
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall, UsageOutcome
from prompt_sidecar.recall.found import SearchResult
from prompt_sidecar.telemetry import catalog, changes, provider_calls
from prompt_sidecar.telemetry.catalog import OTHER, InstrumentKind, Metric
from prompt_sidecar.telemetry.events import EventLog
from prompt_sidecar.telemetry.instruments import Instruments
from prompt_sidecar.telemetry.labels import AgentTools, CallerLabels, ModelNames, ToolNames
from prompt_sidecar.telemetry.lag import LagMeter
from prompt_sidecar.telemetry.spans import Spans, ids_of, traceparent
from prompt_sidecar.telemetry.tallies import Change, Tallies, Values

Metadata = Iterable[Any]
"""A call's metadata, as gRPC gives it: pairs of key and value."""

P = ParamSpec("P")

_log = logging.getLogger("prompt_sidecar.window")
_failures = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BegunCall:
    """A call that has begun."""

    method: str
    """`package.Service/Method`; empty for an unknown method."""
    arrived: float
    """Time of arrival by `perf_counter`."""
    span: object = None


def _harmless(report: Callable[P, None]) -> Callable[P, None]:
    """Log an error of telemetry instead of raising it: the answer is ready, and the caller must get it."""

    @wraps(report)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            report(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is
            _failures.error("telemetry failed to report %s: %s", report.__name__, type(error).__name__)

    return run


class Observer:
    """Receives the events. This class ignores them; see `Telemetry`."""

    def _count(self, *counted: Change) -> None:
        """Count."""

    def _record(self, metric: Metric, value: float, values: Values = ()) -> None:
        """Record a value of a histogram."""

    def watch(
        self,
        totals: Callable[[], Totals],
        active: Callable[[], int],
        memory: Callable[[], ProcessMemory] | None = None,
        buffers: Callable[[], Mapping[str, int]] | None = None,
        cpu: Callable[[], ProcessCpu] | None = None,
    ) -> None:
        """Begin to observe a server that has started to serve.

        Args:
            totals: the core's totals.
            active: number of calls in progress.
            memory: memory of the process.
            buffers: other bytes that the server keeps, by label value of `catalog.BUFFERS_SIZE`.
            cpu: processor time by the limits of the process's control group.
        """

    def watch_held(self, held: Callable[[], HeldConnections]) -> None:
        """Observe the HTTP door's address; `held` returns the connections that wait to be accepted there."""

    def begun(
        self,
        method: str,
        arrived: float,
        metadata: Callable[[], Metadata],  # noqa: ARG002 - used by `Telemetry`
        *,
        traced: bool,  # noqa: ARG002 - as above
    ) -> BegunCall:
        """Record that a call has started in its thread; `traced`: it gets a span. `ended` must follow."""
        return BegunCall(method, arrived)

    def ended(self, called: BegunCall, code: str, error: BaseException | None = None) -> None:
        """Record that a call has ended with a status, in the same thread."""

    def failed(self, error: BaseException) -> None:
        """Record an error that ended a call or request, through any door, or in spite of which it went on.

        An error may be reported in several places, and is counted once.
        """

    @_harmless
    def waited(self, seconds: float) -> None:
        """Record that a call waited for a thread."""
        self._record(catalog.QUEUE_WAIT, seconds)

    @_harmless
    def reached(self, bound: str) -> None:
        """Record that a resource limit of the server was reached without a call whose status reports it."""
        self._count(changes.bound(bound))

    @_harmless
    def late(self, seconds: float) -> None:
        """Record how late the lag timer woke up."""
        self._record(catalog.SCHEDULER_LAG, seconds)

    @_harmless
    def requested(self, route: str, outcome: str, status: int, hidden: int) -> None:
        """Record the end of a request through the HTTP door; `status` of the upstream, 0 if none; `hidden` turns."""
        self._count(*changes.requested(route, outcome, status, hidden))

    def request_begun(self, request: AgentRequest) -> object:  # noqa: ARG002 - used by `Telemetry`
        """Record that a request through the HTTP door has begun.

        `request_ended` must be called with the result, in the same context, whose current request it is until then.
        """
        return None

    def request_ended(self, begun: object, answered: AgentAnswered) -> None:
        """Record its end."""

    def provider_asked(self, asked: ProviderAsked) -> object:  # noqa: ARG002 - as above
        """Record that a provider is called for the current request; `provider_answered` follows, in any context."""
        return None

    def provider_sending(self, begun: object) -> AbstractContextManager[object]:  # noqa: ARG002 - as above
        """Within the returned context, requests that are sent belong to that call."""
        return nullcontext()

    @_harmless
    def provider_answered(self, begun: object, asked: ProviderAsked, answered: ProviderAnswered) -> None:
        """Record the end of a provider's call."""

    @_harmless
    def provider_streamed(self, asked: ProviderAsked, gaps: Sequence[float]) -> None:
        """Record pieces of a provider's stream, with the seconds between each and the previous one."""

    @_harmless
    def request_served(self, request: AgentRequest, answered: AgentAnswered, seconds: float) -> None:
        """Record the time of a request through the HTTP door, whether or not it has a span."""

    def traceparent(self) -> str:
        """Return the current trace context as W3C's header; empty if it is not traced."""
        return ""

    @_harmless
    def foreign(self, listener: str, header: str) -> None:
        """Record the refusal of a request that a web page of another site may have sent, as `header` shows."""
        self._count(changes.foreign(listener, header))

    @_harmless
    def hidden_lost(self, cause: str) -> None:
        """Record that a hidden turn of a run behind the HTTP door was not found in its place."""
        self._count((catalog.HTTP_HIDDEN_LOSSES, (cause,), 1))

    @_harmless
    def received(self) -> None:
        """Record that a prompt has arrived: `trimmed` or `refused` follows."""
        self._count((catalog.PROMPTS_RECEIVED, (), 1))

    def trimmed(self, call: TrimCall, answer: TrimAnswer, began: int) -> None:
        """Record an answered prompt; `began` in nanoseconds since the epoch, as in the other methods."""

    def refused(self, call: TrimCall | None, error: BaseException) -> None:
        """Record a prompt that got this error; None: it was not even a request."""

    def retrieved(self, call: RetrieveCall, answer: RetrieveAnswer, began: int) -> None:
        """Record that a program requested an original."""

    def searched(self, run_id: str, found: SearchResult, began: int) -> None:
        """Record that a program searched a history."""

    def tool_called(self, call: ToolCall, answer: ToolAnswer, began: int) -> None:
        """Record that a model called one of our tools."""

    def reported(self, call: UsageCall, answer: UsageAnswer) -> None:
        """Record an agent's report on a model call."""

    def restored(self, call: RestoreCall, done: Sequence[RestoredArguments], began: int) -> None:
        """Record that masks in the arguments of an agent's tool calls were replaced by values."""

    @_harmless
    def masked(self, answer: MaskAnswer) -> None:
        """Record that a body that is not a prompt was masked."""
        self._count(*changes.findings(answer.findings))

    @_harmless
    def unread(self, door: SendingDoor, why: Unread, outcome: UnreadOutcome) -> None:
        """Record that the guard could not read what a door was about to send."""
        self._count((catalog.GUARD_UNREAD, (door.value, why.value, outcome.value), 1))

    @_harmless
    def handled(self, handled: Handled) -> None:
        """Record a request that was forwarded, trimmed or not."""
        self._count(*changes.handled(handled))

    @_harmless
    def envoy_request(self, outcome: EnvoyOutcome) -> None:
        """Record what Envoy was instructed to do with an HTTP request."""
        self._count((catalog.ENVOY_REQUESTS, (outcome.value,), 1))

    @_harmless
    def envoy_answered(self, seconds: float) -> None:
        """Record how long Envoy waited for the answer to a prompt."""
        self._record(catalog.ENVOY_DURATION, seconds)

    @_harmless
    def masks_stayed(self, reason: MasksStay) -> None:
        """Record that a response through Envoy was forwarded with masks that it, or the rest of it, may contain."""
        self._count((catalog.ENVOY_MASKS_STAYED, (reason.value,), 1))


class Telemetry(Observer):
    """Translates events into metrics and spans. Thread-safe."""

    def __init__(
        self,
        instruments: Instruments,
        tallies: Tallies,
        *,
        spans: Spans,
        events: EventLog,
        models: ModelNames,
        agent_tools: Collection[str] = (),
        callers: CallerLabels | None = None,
    ) -> None:
        self._instruments = instruments
        self._tallies = tallies
        self._spans = spans
        self._models = models
        self._tools = ToolNames()
        self._callers = callers or CallerLabels()
        self._agent_tools = AgentTools(agent_tools)
        self._events = events
        self.lag = LagMeter(self.late)

    def watch(
        self,
        totals: Callable[[], Totals],
        active: Callable[[], int],
        memory: Callable[[], ProcessMemory] | None = None,
        buffers: Callable[[], Mapping[str, int]] | None = None,
        cpu: Callable[[], ProcessCpu] | None = None,
    ) -> None:
        """Read these at each collection, and start measuring lag."""
        self._instruments.watch(totals, active, memory, buffers, cpu)
        self.lag.begin()

    def watch_held(self, held: Callable[[], HeldConnections]) -> None:
        """Read the waiting connections at each collection."""
        self._instruments.held = held

    def begun(self, method: str, arrived: float, metadata: Callable[[], Metadata], *, traced: bool) -> BegunCall:
        """Begin the server's span of a call, if there are spans."""
        span = self._spans.begin(method, metadata(), perf_counter() - arrived) if traced and self._spans.on else None
        return BegunCall(method, arrived, span)

    def request_begun(self, request: AgentRequest) -> object:
        """Begin the span of a request, if there are spans."""
        return self._spans.begin_request(request) if self._spans.on else None

    @_harmless
    def request_ended(self, begun: object, answered: AgentAnswered) -> None:
        """End the span of a request."""
        if begun is not None:
            self._spans.end_request(begun, answered)

    def provider_asked(self, asked: ProviderAsked) -> object:
        """Begin the span of a provider's call, if there are spans."""
        if not self._spans.on:
            return None
        began = time_ns()
        span = self._spans.ask_provider(asked, self._models.shown(asked.model), began)
        return None if span is None else (span, began)

    def provider_sending(self, begun: object) -> AbstractContextManager[object]:
        """Make the span of the provider's call the current one."""
        return (
            use_span(begun[0], record_exception=False, set_status_on_exception=False)
            if isinstance(begun, tuple)
            else nullcontext()
        )

    @_harmless
    def provider_answered(self, begun: object, asked: ProviderAsked, answered: ProviderAnswered) -> None:
        """End the span of a provider's call."""
        self._tallies.add(provider_calls.counted(asked, answered))
        trace = ids_of(begun[0]) if isinstance(begun, tuple) else None
        self._instruments.record_all(provider_calls.recorded(asked, answered, self._models), trace)
        if isinstance(begun, tuple):
            span, began = begun
            model = self._models.shown(answered.usage.model) if answered.usage is not None else ""
            self._spans.provider_answered(span, answered, model, began)

    @_harmless
    def provider_streamed(self, asked: ProviderAsked, gaps: Sequence[float]) -> None:
        """Record the timing of a provider's stream."""
        self._instruments.record_all(provider_calls.streamed(asked, gaps, self._models))

    @_harmless
    def request_served(self, request: AgentRequest, answered: AgentAnswered, seconds: float) -> None:
        """Record the time of a request."""
        self._record(*provider_calls.served(request, answered, seconds))

    def traceparent(self) -> str:
        """See `Observer`."""
        return traceparent() if self._spans.on else ""

    @_harmless
    def ended(self, called: BegunCall, code: str, error: BaseException | None = None) -> None:
        """Count a call, and end its span."""
        if error is not None:
            self.failed(error)
        took = perf_counter() - called.arrived
        self._record(catalog.RPC_DURATION, took, ("grpc", called.method or OTHER, code))
        if called.span is not None:
            self._spans.end(called.span, code)

    @_harmless
    def failed(self, error: BaseException) -> None:
        """Count the resource limit, the guard's refusal or the ceiling of an error."""
        if isinstance(error, SidecarError) and not error.counted:
            error.counted = True
            self._tallies.add(changes.failed(error))

    @_harmless
    def trimmed(self, call: TrimCall, answer: TrimAnswer, began: int) -> None:
        """Count a prompt."""
        model = self._models.label(answer.model)
        self._tallies.add(changes.prompt(call, answer, model))
        self._tallies.add(changes.of_caller(call, answer, self._callers.label(call.caller)))
        if self._spans.on:
            self._spans.trimmed(call, answer, model, began)
        if self._events.on:
            self._events.trimmed(call, answer, model)
        if changes.aside(call):
            return
        tokens, news, label = answer.tokens, answer.news, self._agent_tools.label
        tools = {tool: label(tool, each.brought, declared=tool in news.declared) for tool, each in news.tools.items()}
        self._tallies.add(changes.tools((tools[tool], each) for tool, each in news.tools.items()))
        values: list[tuple[Metric, float, Values]] = [
            # The clock for spans can be set back.
            (catalog.TRIM_DURATION, max(0.0, (time_ns() - began) / 1e9), ()),
            (catalog.PROMPT_SIZE, tokens.before, ("before",)),
            (catalog.PROMPT_SIZE, tokens.after, ("after",)),
        ]
        values += [(catalog.TOOL_RESULT_SIZE, size, (tools.get(tool, OTHER),)) for tool, size in news.result_sizes]
        if answer.size is not None:
            values.append((catalog.WINDOW_SHARE, answer.size.share_of_limit, ()))
        self._instruments.record_all(values, self._spans.exported)
        if answer.news.crossed:
            _log.info(
                "run %s: its prompts have reached %d %% of their limit of %s tokens",
                run_digest(call.run_id),
                max(answer.news.crossed),
                f"{tokens.limit:,}",
                extra=members(run=run_digest(call.run_id), caller=call.caller),
            )

    @_harmless
    def refused(self, call: TrimCall | None, error: BaseException) -> None:
        """Count a prompt that got an error, by the model in the call, or in its body as far as that was read."""
        named = error.model if isinstance(error, SidecarError) else ""
        model = self._models.label(call.model or named) if call is not None else OTHER
        self._tallies.add(changes.refused(call, model))
        if call is not None:
            self._tallies.add(changes.refused_caller(call, self._callers.label(call.caller)))
        if self._events.on:
            self._events.refused(call, model, error)

    @_harmless
    def retrieved(self, call: RetrieveCall, answer: RetrieveAnswer, began: int) -> None:
        """Count a retrieval."""
        self._tallies.add(changes.retrieval(answer, changes.RPC))
        self._recalled(answer)
        if self._spans.on:
            self._spans.retrieved(call.run_id, call.stash_id, answer, changes.RPC, began)

    @_harmless
    def searched(self, run_id: str, found: SearchResult, began: int) -> None:
        """Count a search."""
        self._search(run_id, found, changes.search(found, changes.RPC), changes.RPC, began)

    @_harmless
    def tool_called(self, call: ToolCall, answer: ToolAnswer, began: int) -> None:
        """Count a tool call, and its result."""
        error = answer.outcome.value if answer.is_error else ""
        with self._spans.tool(call, changes.tool_label(call.name), error, began):
            self._tool_called(call, answer, began)

    @_harmless
    def reported(self, call: UsageCall, answer: UsageAnswer) -> None:
        """Count a report."""
        self._tallies.add(changes.report(call, answer))
        if answer.spent is not None and answer.outcome is not UsageOutcome.REPEATED:
            self._tallies.add(changes.spent(answer.spent, self._models.label(answer.spent.model)))
            if answer.spent.unpriced is None:
                labels = (self._callers.label(call.caller), answer.spent.currency)
                self._tallies.add([(catalog.CALLER_COST, labels, answer.spent.cost)])
        if answer.outcome is UsageOutcome.RECORDED and answer.limit_named is None and answer.real_tokens:
            ratio = answer.estimated_tokens / answer.real_tokens
            self._record(catalog.ESTIMATE_RATIO, ratio, (self._models.label(answer.model),))

    @_harmless
    def restored(self, call: RestoreCall, done: Sequence[RestoredArguments], began: int) -> None:
        """Count restored values, by tool and kind."""
        tools = [self._tools.label(each.tool) for each in call.calls]
        self._tallies.add(changes.restored(tools, done))
        if self._spans.on:
            self._spans.restored(call.run_id, done, began)

    def _count(self, *counted: Change) -> None:
        self._tallies.add(counted)

    def _record(self, metric: Metric, value: float, values: Values = ()) -> None:
        self._instruments.record(metric, value, values, self._spans.exported)

    def _tool_called(self, call: ToolCall, answer: ToolAnswer, began: int) -> None:
        counted = changes.tool_call(call.name, answer)
        if answer.found is not None:
            self._search(call.run_id, answer.found, counted, changes.TOOL, began)
            return
        self._tallies.add(counted)
        if answer.recalled is not None:
            self._recalled(answer.recalled)
        if answer.recalled is not None and self._spans.on:
            self._spans.retrieved(call.run_id, "", answer.recalled, changes.TOOL, began)

    def _recalled(self, answer: RetrieveAnswer) -> None:
        if answer.page.content_tokens:
            labels = (self._agent_tools.known(answer.tool), "recalled")
            self._tallies.add([(catalog.TOOL_TOKENS, labels, answer.page.content_tokens)])

    def _search(self, run_id: str, found: SearchResult, counted: list[Change], via: str, began: int) -> None:
        self._tallies.add(counted)
        if found.seconds:  # 0: nothing was searched, as the run is not known
            self._record(catalog.SEARCH_DURATION, found.seconds)
        if self._spans.on:
            self._spans.searched(run_id, found, via, began)


def counters() -> Tallies:
    """The numbers of all counters, at zero."""
    return Tallies(metric for metric in catalog.CATALOG if metric.kind is InstrumentKind.COUNTER)
