"""A small HTTP server, also used for `/metrics`: limited connections, each for a limited time.

Any client can open connections and stay silent, and each has a thread. So the number of connections is limited, and so
is the total time of each. Beyond the limit the oldest connection that has not sent its request yet is closed, so that a
scraper is served despite any number of silent clients.
"""

from __future__ import annotations

import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from prompt_sidecar.browsers import BrowserHeaders, Sites, Visitors
from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.values import is_loopback_host

LOOK_SECONDS: Final = 0.25
"""Interval of checks for connections past their timeout."""


class Exposition:
    """Answers scrapes."""

    def __init__(self, address: tuple[str, int], exposed: ExposedMetrics, options: TelemetryOptions) -> None:
        """Listen. Raises OSError if the address is not available."""
        # Beyond loopback any client may read it, and scrapers use host names that are not in any list.
        sites = Sites.of(options.hosts, any_host=not is_loopback_host(address[0]), links=True)
        self._visitors = Visitors("metrics", "telemetry.hosts", sites)
        bounds = Bounds(options.scrapes, "telemetry.scrapes", options.scrape_timeout, "telemetry.scrape_timeout")
        app = _without_strangers(self._visitors, _only("/metrics", make_wsgi_app(exposed.registry())))
        self._server = BoundedServer(address, app, bounds)
        self.exposed = exposed
        self.port = self._server.server_port
        """The actual port, also if port 0 was configured."""
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        threading.Thread(target=serve, name="metrics", daemon=True).start()

    def report_to(self, reached: Callable[[str], None], foreign: Callable[[str, str], None] | None = None) -> None:
        """Call `reached` with the name of each reached limit, and `foreign` when another site's page is refused."""
        self._server.reached = reached
        if foreign is not None:
            self._visitors.count = foreign

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


App = Callable[[Any, Any], Iterable[bytes]]
"""A WSGI application."""


def sent(environment: Mapping[str, Any]) -> BrowserHeaders:
    """Return the headers of a request by which another site's page is recognised."""
    names = ("HTTP_HOST", "HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE", "HTTP_SEC_FETCH_MODE")
    return BrowserHeaders(*(str(environment.get(name, "")) for name in names))


def _without_strangers(visitors: Visitors, app: App) -> App:
    """Refuse requests of other sites' web pages."""

    def look(environment: Any, start: Any) -> Iterable[bytes]:
        refusal = visitors.refusal(sent(environment))
        if refusal is None:
            return app(environment, start)
        start(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", [("content-type", "text/plain")])
        return [f"{refusal.message}\n".encode()]

    return look


def not_found(start: Any) -> Iterable[bytes]:
    """Answer a path that is not served."""
    start("404 Not Found", [("content-type", "text/plain")])
    return [b"not found\n"]


def _only(path: str, app: App) -> App:
    """Serve one path."""
    return lambda environment, start: app(environment, start) if environment["PATH_INFO"] == path else not_found(start)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The number of connections, and the seconds of one, with the names of both limits."""

    connections: int
    connections_bound: str
    seconds: float
    seconds_bound: str


class _ScrapeHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: any client could fill the log."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """Serves `app` at an address. Raises OSError if the address is not available."""

    daemon_threads = True
    request_queue_size = 128  # with the library's 5, waiting connections take a second until the kernel tries again

    def __init__(self, address: tuple[str, int], app: App, bounds: Bounds) -> None:
        host, port = address
        self.address_family, _, _, _, resolved = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.reached: Callable[[str], None] = lambda _: None
        self._bounds = bounds
        self._app = app
        self._lock = threading.Lock()
        self._silent: OrderedDict[socket.socket, float] = OrderedDict()
        """Connections that have not sent their request, with the time of connection."""
        self._asking: OrderedDict[socket.socket, float] = OrderedDict()
        self._of_thread = threading.local()
        super().__init__((str(resolved[0]), port), _ScrapeHandler)
        self.set_app(self._answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection, or close it if all others are being answered."""
        with self._lock:
            full = len(self._silent) + len(self._asking) >= self._bounds.connections
            oldest = next(iter(self._silent), None) if full else None
            if not full or oldest is not None:
                self._silent[request] = monotonic()
        if full:
            self.reached(self._bounds.connections_bound)
            _end(request if oldest is None else oldest)
            if oldest is None:
                self.shutdown_request(request)
                return
            with self._lock:
                self._silent.pop(oldest, None)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request in its thread."""
        self._of_thread.request = request
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget and close a connection."""
        with self._lock:
            self._silent.pop(request, None)
            self._asking.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: most errors are closed connections, and the default is a traceback on stderr."""

    def service_actions(self) -> None:
        """Close the connections past their timeout."""
        last = monotonic() - self._bounds.seconds
        with self._lock:
            over = [each for held in (self._silent, self._asking) for each, since in held.items() if since <= last]
        for each in over:
            self.reached(self._bounds.seconds_bound)
            _end(each)

    def _answer(self, environment: Any, start: Any) -> Iterable[bytes]:
        request = self._of_thread.request
        with self._lock:
            if request in self._silent:
                self._asking[request] = self._silent.pop(request)
        body = self._app(environment, start)
        return [] if environment["REQUEST_METHOD"] == "HEAD" else body


def _end(connection: socket.socket) -> None:
    """Shut a connection down, which wakes its thread to close it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
