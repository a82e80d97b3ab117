"""From settings and variables to running telemetry, and its end, whatever the collector does."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.metrics import MeterProvider

from prompt_sidecar.telemetry.observer import Observer, Telemetry
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import END_SECONDS, EXPORT_SECONDS, exporters, resource, start
from prompt_sidecar.v1 import service_pb2_grpc
from tests.cli.running import program
from tests.telemetry.watched import prompt

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NOBODY = "http://127.0.0.1:9"
PATIENCE = 25.0
"""Seconds: less than what OpenTelemetry's own defaults take, and eight times the promise, for a slow machine."""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own variables of OpenTelemetry are not these tests'."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environment", "pushed"),
    [
        ({}, ""),
        ({ENDPOINT: NOBODY}, "metrics spans logs"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": NOBODY}, "spans"),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": NOBODY}, "metrics"),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": NOBODY}, "logs"),
        ({ENDPOINT: NOBODY, "OTEL_TRACES_EXPORTER": "none"}, "metrics logs"),
        ({ENDPOINT: NOBODY, "OTEL_METRICS_EXPORTER": "none"}, "spans logs"),
        ({ENDPOINT: NOBODY, "OTEL_LOGS_EXPORTER": "none"}, "metrics spans"),
        ({ENDPOINT: NOBODY, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "metrics spans logs"),
    ],
)
def test_each_signal_is_pushed_where_it_has_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], pushed: str
) -> None:
    """By OpenTelemetry's own variables; a signal can be turned off."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    push = exporters(TelemetryOptions(), environment)
    assert pushed.split() == [name for name in ("metrics", "spans", "logs") if getattr(push, name) is not None]


@pytest.mark.parametrize(
    ("protocol", "kind"), [("grpc", "grpc"), ("http/protobuf", "http"), ("http", "http"), ("", "grpc")]
)
def test_the_setting_is_an_endpoint_too(monkeypatch: pytest.MonkeyPatch, protocol: str, kind: str) -> None:
    """The protocol stays what the variable says."""
    environment = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol} if protocol else {}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    push = exporters(TelemetryOptions(otlp_endpoint=NOBODY), environment)
    for made in (push.spans, push.logs):
        assert made is not None
        assert f".{kind}." in type(made(MeterProvider())).__module__


def test_who_tells() -> None:
    """The service's name and version, and an id of this process; what the variables say goes first."""
    ours = resource({}).attributes
    assert "prompt-sidecar" == ours["service.name"]
    assert {"service.version", "service.instance.id"} <= ours.keys()
    assert ours["service.instance.id"] != resource({}).attributes["service.instance.id"]


def test_the_variables_say_who_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's uid, say."""
    environment = {"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-1,team=a"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    attributes = resource(environment).attributes
    assert ("mine", "pod-1", "a") == (attributes["service.name"], attributes["service.instance.id"], attributes["team"])


def test_nothing_is_made_where_nobody_asks() -> None:
    """No address, no endpoint: the server tells an observer that hears nothing."""
    running = start(TelemetryOptions(), {})
    assert Observer is type(running.observer)
    running.stop()


def test_telemetry_can_be_turned_off() -> None:
    """OTEL_SDK_DISABLED turns off `/metrics` as well, as it turns off all of the SDK."""
    environment = {"OTEL_SDK_DISABLED": "true", ENDPOINT: NOBODY}
    running = start(TelemetryOptions(), environment, address=("127.0.0.1", 0))
    assert (Observer, None) == (type(running.observer), running.exposition)
    assert "OTEL_SDK_DISABLED" in running.notices[0]


def test_an_end_does_not_wait_for_a_dead_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that accepts and never answers is the worst: each export then takes its whole time."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        running = start(TelemetryOptions(), dict(os.environ))
        assert isinstance(running.observer, Telemetry)
        running.observer.ended(running.observer.begun("a/B", time.perf_counter(), tuple, traced=True), "OK")
        running.stop()  # a wait for that peer would never end
    assert EXPORT_SECONDS < END_SECONDS < 3.0


class _Collector(trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer):
    """A collector that keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.resource: dict[str, str] = {}

    def Export(self, request: Any, _: Any) -> Any:  # noqa: N802 - OTLP's name
        """Keep either signal: both services call their method so."""
        for each in getattr(request, "resource_spans", ()):
            self.resource = {pair.key: pair.value.string_value for pair in each.resource.attributes}
            self.spans += [span for scope in each.scope_spans for span in scope.spans]
        for each in getattr(request, "resource_metrics", ()):
            self.metrics |= {metric.name: metric for scope in each.scope_metrics for metric in scope.metrics}
        if isinstance(request, trace_service_pb2.ExportTraceServiceRequest):
            return trace_service_pb2.ExportTraceServiceResponse()
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def _collecting() -> Iterator[tuple[_Collector, str]]:
    collector = _Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(0)


def test_what_a_stopped_sidecar_has_left_is_sent() -> None:
    """The real program, told to stop right after a call: its span and its figures arrive all the same."""
    settings = {"SERVER__LISTEN": "127.0.0.1:0", "TELEMETRY__METRICS_LISTEN": "127.0.0.1:0", "LOG__FORMAT": "json"}
    with _collecting() as (collector, endpoint), program(TELEMETRY__OTLP_ENDPOINT=endpoint, **settings) as running:
        port = running.wait_for(r"http://127\.0\.0\.1:(\d+)/metrics")[1]
        address = running.wait_for(r"ready: listening on ([^\"]+)")[1]
        with grpc.insecure_channel(address) as channel:
            service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(prompt(3))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
            assert b"prompt_sidecar_prompts_total" in response.read()
        running.process.send_signal(signal.SIGTERM)
        assert 0 == running.end()
    assert ["prompt_sidecar.v1.SidecarService/TrimPrompt"] == sorted(span.name for span in collector.spans)
    (point,) = [
        point
        for point in collector.metrics["prompt_sidecar.prompts"].sum.data_points
        if point.as_int == 1 or point.as_double == 1
    ]
    assert "untouched" in {pair.value.string_value for pair in point.attributes}
    (duration,) = collector.metrics["rpc.server.call.duration"].exponential_histogram.data_points
    assert 1 == duration.count
    assert "prompt-sidecar" == collector.resource["service.name"]
    assert all(json.loads(line) for line in running.lines)


def test_a_stop_does_not_wait_for_a_dead_collector() -> None:
    """The real program, from the signal to its end."""
    settings = {"SERVER__LISTEN": "127.0.0.1:0", "TELEMETRY__METRICS_LISTEN": ""}
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with program(TELEMETRY__OTLP_ENDPOINT=endpoint, **settings) as running:
            address = running.wait_for(r"ready: listening on (\S+)")[1]
            with grpc.insecure_channel(address) as channel:
                service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(prompt(3))
            running.process.send_signal(signal.SIGTERM)
            assert 0 == running.end()


def test_an_address_that_is_taken() -> None:
    """Asked for, it stops the start and says so; the default is done without, with a warning."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with program(SERVER__LISTEN="127.0.0.1:0", TELEMETRY__METRICS_LISTEN=address) as running:
            assert 2 == running.end()
    assert f"telemetry.metrics_listen {address}: cannot listen there" in "".join(running.lines)


def test_what_check_config_warns_of_is_logged() -> None:
    """Whoever starts a server reads its log, and may never have asked check-config."""
    settings = {"SERVER__LISTEN": "127.0.0.1:0", "TELEMETRY__METRICS_LISTEN": "0.0.0.0:0", "POLICY__FIT_HIGH": "0.995"}
    with program(**settings) as running:
        running.wait_for("WARNING .* telemetry.metrics_listen 0.0.0.0:0: any client that reaches it")
        running.wait_for("WARNING .* policy.fit_high, 0.995")
        running.wait_for("ready")
