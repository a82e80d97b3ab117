"""The MCP process's telemetry, by OpenTelemetry's conventions for the Model Context Protocol.

Each request or notification of a host is a span of kind server, in the trace of its `params._meta`, or else of the HTTP
request's header, and a value of `mcp.server.operation.duration`. The call of the sidecar that it causes is within that
span, so that a host, this process and the sidecar share one trace. MCP's library would write such spans too; ours
replace them, as those contain names chosen by a host or a model, and the text of errors.

Names from a host are mapped to closed sets here: a method outside the protocol is `_OTHER`, a tool that the sidecar
does not have is `other`. Arguments, results, messages of errors, and a host's address are not written, nor is
`mcp.session.id`, as there are no sessions.

Nothing is pushed unless the variables name a collector, as those of `prompt-sidecar serve` do. Data that cannot be
pushed is dropped: a queue of `OTEL_BSP_MAX_QUEUE_SIZE` spans, 2,048 by default, and exports of two seconds limit the
memory.

Source: docs/gen-ai/mcp.md of open-telemetry/semantic-conventions-genai, November 2026.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from mcp import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The same as the server's (`telemetry/spans.py`); the conventions for MCP have no schema URL."""
SCOPE: Final = "prompt_sidecar.mcp"
EXPORT_SECONDS: Final = 2.0
"""Timeout of an export, the same as the server's, unless OTEL_EXPORTER_OTLP_TIMEOUT is set."""
END_SECONDS: Final = 2.25
"""Seconds that the end of the process waits for the last exports."""
TOOLS: Final = frozenset({"recall_elided_content", "search_conversation_history", "create_tasks", "update_task"})
OTHER_TOOL: Final = "other"
METHODS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tools/call",
        "tools/list",
    }
)
"""The protocol's methods that a host may send."""
OTHER: Final = "_OTHER"
BOUNDARIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bucket boundaries in seconds, as the conventions advise."""
_INVALID: Final = "ValidationError"
"""pydantic's error, which MCP's library answers as invalid parameters."""
_CALL: Final = "tools/call"
_VERSION: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
"""A version of the protocol."""
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""A request id as hosts generate it; any other may contain text."""
_SIGNALS: Final = {
    "TRACES": ("trace_exporter", "OTLPSpanExporter"),
    "METRICS": ("metric_exporter", "OTLPMetricExporter"),
}

LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
"""OpenTelemetry's loggers that log each failed export."""
REPEAT_SECONDS: Final = 60.0
"""Time between two lines about failed exports."""

_log = logging.getLogger("prompt_sidecar.mcp")
_propagator: Final = TraceContextTextMapPropagator()


class _Failing(logging.Filter):
    """Replaces lines about failed exports, which may contain the collector's credential, by one line a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._logged_at >= REPEAT_SECONDS:
            self._logged_at = now
            _log.warning(
                "the collector does not take what is pushed; it is tried again, and what waits in vain is dropped"
            )
        return False


@dataclass(slots=True)
class Telemetry:
    """A tracer and the only instrument; without providers that export, they record nothing."""

    tracer: Tracer
    durations: Histogram
    _ends: tuple[Callable[[], object], ...] = field(default=())

    def stop(self) -> None:
        """Flush and shut down. Takes at most `END_SECONDS`, whatever the collector does."""
        threads = [threading.Thread(target=end, name="telemetry-end", daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        last = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, last - time.monotonic()))


def begin(environment: Mapping[str, str] = os.environ, installed: str = "") -> Telemetry:
    """Start telemetry as configured by the variables; without a collector, with the globally installed providers."""
    traces, figures = trace.get_tracer_provider(), metrics.get_meter_provider()
    ends: list[Callable[[], object]] = []
    pushed = {signal for signal in _SIGNALS if _is_pushed(signal, environment)}
    try:
        if pushed:
            traces, figures, ends = _providers(pushed, environment, installed)
    except ImportError as error:
        _log.warning("there is no telemetry: a collector is named, and %s is not installed", error.name)
    return _telemetry(traces, figures, installed, tuple(ends))


def _telemetry(
    traces: TracerProvider, figures: MeterProvider, installed: str, ends: tuple[Callable[[], object], ...]
) -> Telemetry:
    durations = figures.get_meter(SCOPE, installed, SCHEMA).create_histogram(
        "mcp.server.operation.duration",
        "s",
        "Time from an MCP request or notification to its result, by method and tool.",
        explicit_bucket_boundaries_advisory=BOUNDARIES,
    )
    return Telemetry(traces.get_tracer(SCOPE, installed, SCHEMA), durations, ends)


def _is_pushed(signal: str, environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get(f"OTEL_{signal}_EXPORTER", "otlp").strip() == "none":
        return False
    named = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return any(environment.get(name, "").strip() for name in named)


def _providers(
    pushed: set[str], environment: Mapping[str, str], installed: str
) -> tuple[TracerProvider, MeterProvider, list[Callable[[], object]]]:
    """Return providers that push these signals, and functions that stop them. Raises ImportError without an SDK."""
    from opentelemetry.sdk.metrics import MeterProvider as Meters
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as Traces
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ours = {"service.version": installed}
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        ours["service.name"] = "prompt-sidecar-mcp"
    failing = _Failing()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(failing)
    resource = Resource.create(ours, SCHEMA)
    traces = Traces(resource=resource, shutdown_on_exit=False)
    readers = []
    if "TRACES" in pushed:
        traces.add_span_processor(BatchSpanProcessor(_exporter("TRACES", environment)))
    if "METRICS" in pushed:
        readers.append(PeriodicExportingMetricReader(_exporter("METRICS", environment)))
    meters = Meters(readers, resource, shutdown_on_exit=False)
    return traces if "TRACES" in pushed else trace.NoOpTracerProvider(), meters, [traces.shutdown, meters.shutdown]


def _exporter(signal: str, environment: Mapping[str, str]) -> Any:
    """Return an exporter, which reads its destination from the variables itself."""

    def variable(name: str) -> str:
        own = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}", "").strip()
        return own or environment.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip()

    module, exporter = _SIGNALS[signal]
    protocol = "http" if variable("PROTOCOL").startswith("http") else "grpc"
    made = getattr(import_module(f"opentelemetry.exporter.otlp.proto.{protocol}.{module}"), exporter)
    return made(timeout=None if variable("TIMEOUT") else EXPORT_SECONDS)


class Middleware:
    """Replaces the middleware of MCP's library: see the module. `transport` is `pipe` or `tcp`."""

    def __init__(self, telemetry: Telemetry, transport: str) -> None:
        self._telemetry = telemetry
        self._transport = transport

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Any]) -> Any:
        """Handle a host's message within its span."""
        known = self._known(ctx)
        name = f"{known['mcp.method.name']} {known.get('gen_ai.tool.name', '')}".rstrip()
        request = {}
        if ctx.request_id is not None and _ID.fullmatch(str(ctx.request_id)):
            request["jsonrpc.request.id"] = str(ctx.request_id)
        began = time.perf_counter()
        errors: dict[str, str] = {}
        with self._telemetry.tracer.start_as_current_span(
            name,
            _parent(ctx),
            SpanKind.SERVER,
            known | request,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                result = await call_next(ctx)
                if known["mcp.method.name"] == _CALL and _failed(result):
                    errors = {"error.type": "tool_error"}
            except BaseException as error:
                errors = _errors(error)
                raise
            else:
                return result
            finally:
                _end(span, errors)
                self._telemetry.durations.record(time.perf_counter() - began, known | errors)

    def _known(self, ctx: Any) -> dict[str, str]:
        """Return a message's attributes, from closed sets."""
        method = ctx.method if ctx.method in METHODS else OTHER
        known = {"mcp.method.name": method, "network.transport": self._transport}
        if self._transport == "tcp":
            known["network.protocol.name"] = "http"
        if _VERSION.fullmatch(str(ctx.protocol_version)):
            known["mcp.protocol.version"] = str(ctx.protocol_version)
        if method == _CALL:
            named = ctx.params.get("name") if ctx.params else None
            known["gen_ai.operation.name"] = "execute_tool"
            known["gen_ai.tool.name"] = named if named in TOOLS else OTHER_TOOL
        return known


def _failed(result: Any) -> bool:
    """Whether a tool's result is an error; MCP's library passes it as its own type, or in its serialised form."""
    if isinstance(result, Mapping):
        return result.get("isError") is True
    return isinstance(result, CallToolResult) and result.is_error is True


def _errors(error: BaseException) -> dict[str, str]:
    if isinstance(error, MCPError):
        code = str(error.error.code)
    elif type(error).__name__ == _INVALID:
        code = str(INVALID_PARAMS)
    else:
        return {"error.type": type(error).__name__}
    return {"error.type": code, "rpc.response.status_code": code}


def _end(span: Span, errors: Mapping[str, str]) -> None:
    if errors:
        span.set_attributes(dict(errors))
        span.set_status(StatusCode.ERROR)


def _parent(ctx: Any) -> Context | None:
    """Return the trace that a message belongs to; None for the current one, if any."""
    carriers = [ctx.meta, getattr(ctx.request, "headers", None)]
    for carrier in carriers:
        if carrier:
            names = {name: carrier.get(name) for name in ("traceparent", "tracestate")}
            found = _propagator.extract({name: value for name, value in names.items() if isinstance(value, str)})
            if trace.get_current_span(found).get_span_context().is_valid:
                return found
    return None
