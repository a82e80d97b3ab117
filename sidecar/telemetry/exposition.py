"""`/metrics`: what OpenTelemetry's Prometheus reader gives, and the histograms, over HTTP.

A scrape shares the interpreter with calls, and is plain Python. So it pauses after each family, and a call that waits
for the interpreter has it within a fraction of a millisecond, not after the 5 that Python would let it wait.
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric as Family
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from sidecar.telemetry.distributions import Distributions
from sidecar.telemetry.histogram_text import HistogramText

PAUSE_SECONDS: Final = 0.0001
"""After each family of a scrape. Long enough for a thread that waits to get the interpreter; half a hundred of them."""
_GZIP_LEVEL: Final = 1
"""A tenth of the size for a third of the time that the default takes."""
_END: Final = b"# EOF\n"


def reader(registry: CollectorRegistry) -> PrometheusMetricReader:
    """OpenTelemetry's reader, as it is read here."""
    return PrometheusMetricReader(scope_info_enabled=False, registry=registry)


class Unhurried(Collector):
    """What a registry's reader exposes, with pauses. Safe for scrapes at the same time: one collects after another."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Family]:
        """Collect once."""
        with self._lock:
            found = list(self._registry.collect())
        for each in found:
            time.sleep(PAUSE_SECONDS)
            yield each


def registry(reader_registry: CollectorRegistry) -> CollectorRegistry:
    """What `/metrics` exposes beside histograms: ours, and what the process and the interpreter take."""
    made = CollectorRegistry()
    made.register(Unhurried(reader_registry))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=made)
    return made


class Exposition:
    """An HTTP server for a registry and for histograms, on its own port."""

    def __init__(self, address: tuple[str, int], exposed: CollectorRegistry, distributions: Distributions) -> None:
        """Listen. Raises OSError if the address cannot be had."""
        family, _, _, _, (host, *_) = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

        class Listening(_Server):
            address_family = family

        app = _app(exposed, HistogramText(distributions))
        self._server = make_server(str(host), address[1], app, Listening, handler_class=_Silent)
        self.port = self._server.server_port
        """Also where port 0 was asked for."""
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """A scrape is no event for the log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _app(exposed: CollectorRegistry, histograms: HistogramText) -> Callable[[dict[str, Any], Any], Sequence[bytes]]:
    """The library's application, whose answers the histograms are added to. All is told, whatever is asked for."""
    rest = make_wsgi_app(exposed, disable_compression=True)

    def app(environ: dict[str, Any], start_response: Any) -> Sequence[bytes]:
        answered: list[Any] = []
        (body,) = rest({**environ, "QUERY_STRING": ""}, lambda *status: answered.extend(status))
        status, headers = answered
        kind = dict(headers).get("Content-Type", "")
        if kind:
            openmetrics = kind.startswith("application/openmetrics-text")
            added = histograms.text(openmetrics=openmetrics).encode()
            body = body.removesuffix(_END) + added + _END if openmetrics else body + added
        if kind and "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            body = gzip.compress(body, _GZIP_LEVEL)
            headers = [*headers, ("Content-Encoding", "gzip")]
        start_response(status, headers)
        return [body]

    return app
