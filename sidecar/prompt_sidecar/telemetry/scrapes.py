"""The HTTP server of `/metrics`: a bounded number of connections, each for a bounded time.

Any client can open connections and stay silent, and each has a thread. So the number of connections is bounded, and so
is the total time of each. Beyond the bound the oldest connection that has not sent its request yet is closed, so that a
scraper gets through next to any number of silent clients.
"""

from __future__ import annotations

import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from prompt_sidecar.telemetry.options import TelemetryOptions

LOOK_SECONDS: Final = 0.25
"""Interval of checks for connections past their timeout."""


class Exposition:
    """Answers scrapes of a registry."""

    def __init__(self, address: tuple[str, int], exposed: CollectorRegistry, options: TelemetryOptions) -> None:
        """Listen. Raises OSError if the address is not available."""
        self._server = _Server(address, make_wsgi_app(exposed), options)
        self.port = self._server.server_port
        """The actual port, also if port 0 was configured."""
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        threading.Thread(target=serve, name="metrics", daemon=True).start()

    def report_to(self, reached: Callable[[str], None]) -> None:
        """Call `reached` with the name of each bound that is reached."""
        self._server.reached = reached

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: any client could fill the log."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128  # with the library's 5, connections wait a second for the kernel to try again

    def __init__(self, address: tuple[str, int], app: Callable[..., Any], options: TelemetryOptions) -> None:
        host, port = address
        self.address_family, _, _, _, resolved = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.reached: Callable[[str], None] = lambda _: None
        self._options = options
        self._app = app
        self._lock = threading.Lock()
        self._silent: OrderedDict[socket.socket, float] = OrderedDict()
        """Connections that have not sent their request, with the time of connection."""
        self._asking: OrderedDict[socket.socket, float] = OrderedDict()
        self._of_thread = threading.local()
        super().__init__((str(resolved[0]), port), _Handler)
        self.set_app(self._answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection, or close it if all others are being answered."""
        with self._lock:
            full = len(self._silent) + len(self._asking) >= self._options.scrapes
            oldest = next(iter(self._silent), None) if full else None
            if not full or oldest is not None:
                self._silent[request] = monotonic()
        if full:
            self.reached("telemetry.scrapes")
            _end(request if oldest is None else oldest)
            if oldest is None:
                self.shutdown_request(request)
                return
            with self._lock:
                self._silent.pop(oldest, None)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it, in its thread."""
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
        last = monotonic() - self._options.scrape_timeout
        with self._lock:
            over = [each for held in (self._silent, self._asking) for each, came in held.items() if came <= last]
        for each in over:
            self.reached("telemetry.scrape_timeout")
            _end(each)

    def _answer(self, environment: Any, start: Any) -> Iterable[bytes]:
        request = self._of_thread.request
        with self._lock:
            if request in self._silent:
                self._asking[request] = self._silent.pop(request)
        answer: Iterable[bytes] = self._app(environment, start)
        return answer


def _end(connection: socket.socket) -> None:
    """Shut a connection down, which wakes its thread to close it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
