"""A collector that does not take what is pushed: one line says so, and one that it does again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

from prompt_sidecar.telemetry.collector import LOGGERS, Collector, exporters_heard
from tests.cli.running import program

REFUSALS: Final = 6
"""Exports that the collector refuses before it takes them."""
DOWN: Final = "the collector does not take metrics: "
AGAIN: Final = "the collector takes metrics again"


class Refusing:
    """Counts exports, and says which are refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = REFUSALS

    def refuses(self) -> bool:
        """Whether this one is refused."""
        with self._lock:
            self._left -= 1
            return self._left >= 0


@contextmanager
def over_grpc() -> Iterator[int]:
    """A collector's port."""
    refusing = Refusing()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, _: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name for it
            if refusing.refuses():
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token has expired")
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(4))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(0)


@contextmanager
def over_http() -> Iterator[int]:
    """The same over HTTP."""
    refusing = Refusing()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(401 if refusing.refuses() else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def metrics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are pushed twice a second, and nothing else.

    Their reader warns if the first push is due before the meter provider is made.
    """
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")  # on a busy machine an export takes long
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")


@pytest.mark.usefixtures("metrics_alone")
@pytest.mark.parametrize(("protocol", "collector"), [("grpc", over_grpc), ("http/protobuf", over_http)])
def test_a_line_at_each_change_of_state(
    protocol: str, collector: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many exports fail in between; and it says why."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with collector() as port:
        endpoint = f"http://127.0.0.1:{port}"
        with program("--listen", "127.0.0.1:0", TELEMETRY__OTLP_ENDPOINT=endpoint) as running:
            running.wait_for(AGAIN)
            running.process.terminate()
            assert 0 == running.end()

    down = [line for line in running.lines if DOWN in line]
    assert 1 == len(down)
    assert ("the token has expired" if protocol == "grpc" else "401") in down[0]
    assert 1 == len([line for line in running.lines if AGAIN in line])
    assert [] == [line for line in running.lines if "opentelemetry" in line]


@pytest.mark.usefixtures("metrics_alone")
def test_a_collector_that_is_not_there() -> None:
    """One line with the reason, and none of the library's at the end."""
    with program("--listen", "127.0.0.1:0", TELEMETRY__OTLP_ENDPOINT="http://127.0.0.1:1") as running:
        running.wait_for(DOWN + ".*refused")
        running.process.terminate()
        assert 0 == running.end()

    assert 1 == len([line for line in running.lines if DOWN in line])
    assert [] == [line for line in running.lines if "opentelemetry" in line]


def test_the_state_is_that_of_all_signals(caplog: pytest.LogCaptureFixture) -> None:
    """It is down while one of them is refused, whatever becomes of the others."""
    caplog.set_level(logging.INFO)
    collector = Collector()
    for signal, taken in (
        ("traces", True),
        ("traces", False),
        ("metrics", False),
        ("metrics", True),
        ("traces", False),
        ("traces", True),
        ("metrics", True),
    ):
        collector.exported(signal, taken=taken)

    assert [logging.WARNING, logging.INFO] == [record.levelno for record in caplog.records]


@pytest.mark.parametrize("name", LOGGERS)
def test_what_a_library_says_is_quoted_once_without_a_password(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """And not logged by itself."""
    collector = Collector()
    with exporters_heard(collector):
        logging.getLogger(name).error("no way to %s\nand more", "https://user:secret@host:4318/v1, retrying in 1.02s")
        logging.getLogger(name).error("no way again")
        collector.exported("events", taken=False)
    logging.getLogger(name).error("after that as ever")

    assert ["prompt_sidecar.telemetry.collector", name] == [record.name for record in caplog.records]
    assert "no way to https://host:4318/v1 and more;" in caplog.records[0].getMessage()
