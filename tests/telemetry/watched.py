"""A real server whose figures are scraped over a real socket and whose spans stay in memory."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.doors.grpc.servicer import METHODS, SERVICE
from prompt_sidecar.engine.runs.metering import Rules
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.telemetry.catalog import InstrumentKind, Metric
from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import assemble
from prompt_sidecar.telemetry.scrapes import Exposition
from prompt_sidecar.v1 import trim_pb2
from tests.doors.grpc.serving import PATIENCE, Serving, serving

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one scrape told."""

    samples: tuple[Sample, ...]
    text: str

    def of(self, metric: Metric, **labels: str) -> float:
        """The sum of a metric's series with these labels; of a histogram how often it was recorded."""
        name = scraped_name(metric) + ("_count" if metric.kind is InstrumentKind.HISTOGRAM else "")
        wanted = {key.replace(".", "_"): value for key, value in labels.items()}
        return sum(
            sample.value for sample in self.samples if sample.name == name and wanted.items() <= sample.labels.items()
        )


def scrape(port: int) -> Figures:
    """Scrape a port of this machine as Prometheus does."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": OPENMETRICS})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        text = response.read().decode()
    families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    return Figures(tuple(sample for family in families for sample in family.samples), text)


@dataclass(frozen=True, slots=True)
class Telling:
    """Telemetry for a server with any doors, whose figures are scraped."""

    observer: Observer
    port: int

    def scrape(self) -> Figures:
        """See `scrape`."""
        return scrape(self.port)


@contextlib.contextmanager
def telling() -> Iterator[Telling]:
    """Run telemetry without a server."""
    exposition = Exposition(
        ("127.0.0.1", 0), ExposedMetrics([f"{SERVICE}/{name}" for name in METHODS]), TelemetryOptions()
    )
    running = assemble(TelemetryOptions(), resource=Resource({}), exposition=exposition)
    try:
        yield Telling(running.observer, exposition.port)
    finally:
        running.stop()


@dataclass(frozen=True, slots=True)
class Watched:
    """A running server and what it tells."""

    served: Serving
    port: int
    exporter: InMemorySpanExporter
    logs: InMemoryLogRecordExporter

    def events(self) -> list[LogRecord]:
        """Records of events, in their order."""
        return [each.log_record for each in self.logs.get_finished_logs()]

    def scrape(self) -> Figures:
        """See `scrape`."""
        return scrape(self.port)

    def spans(self) -> Mapping[str, list[ReadableSpan]]:
        """Finished spans by name, in the order in which they ended."""
        found: dict[str, list[ReadableSpan]] = {}
        for span in self.exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found


@contextlib.contextmanager
def watched(
    options: TelemetryOptions | None = None,
    server: ServerOptions | None = None,
    limits: Limits | None = None,
    rules: Rules | None = None,
    *,
    genai: bool = False,
) -> Iterator[Watched]:
    """Serve and watch, everything on free ports."""
    methods = [f"{SERVICE}/{name}" for name in METHODS]
    exposition = Exposition(("127.0.0.1", 0), ExposedMetrics(methods), TelemetryOptions())
    exporter, logs = InMemorySpanExporter(), InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    running = assemble(
        options or TelemetryOptions(),
        resource=Resource({"service.name": "prompt-sidecar"}),
        processor=lambda _: SimpleSpanProcessor(exporter),
        log_processor=lambda _: SimpleLogRecordProcessor(logs),
        genai=genai,
        exposition=exposition,
    )
    try:
        with serving(server, running.observer, limits, rules) as served:
            yield Watched(served, exposition.port, exporter, logs)
    finally:
        running.stop()


def scraped_name(metric: Metric) -> str:
    """What Prometheus calls a metric; a histogram's series add to it."""
    unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    return metric.name.replace(".", "_") + unit + ("_total" if metric.kind is InstrumentKind.COUNTER else "")


def messages(iterations: int, text: str = "line of a log, nothing to see here") -> list[dict[str, Any]]:
    """A run of that many calls of read_file, each with a result of some hundred tokens."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "Find the culprit."}]
    for number in range(iterations):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"module_{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number} {text}\n" * 60})
    return found


def prompt(iterations: int, *, run_id: str = "run", **fields: Any) -> trim_pb2.TrimPromptRequest:
    """A prompt of such a run, in a window of 8,000 tokens."""
    return prompt_of(messages(iterations), run_id=run_id, **fields)


def prompt_of(sent: object, *, run_id: str = "run", **fields: Any) -> trim_pb2.TrimPromptRequest:
    """A prompt with these messages, or this body, in a window of 8,000 tokens."""
    body = json.dumps(sent).encode()
    return trim_pb2.TrimPromptRequest(
        run_id=run_id,
        context_window=fields.pop("context_window", 8_000),
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body),
        **fields,
    )
