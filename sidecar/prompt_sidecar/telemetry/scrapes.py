"""The HTTP server of `/metrics`: a bounded number of connections, each for a bounded time.

Whoever reaches it can open connections and say nothing, and each has a thread. So there are only so many, and a
connection has so long in all to send its request and take the answer. When one too many comes, one that has not sent
its request yet gives way, the oldest first, so that a scraper gets through beside any number that say nothing.
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
"""Time between looks for connections whose time is over."""


class Exposition:
    """Answers scrapes of a registry."""

    def __init__(self, address: tuple[str, int], exposed: CollectorRegistry, options: TelemetryOptions) -> None:
        """Listen. Raises OSError if the address cannot be had."""
        self._server = _Server(address, make_wsgi_app(exposed), options)
        self.port = self._server.server_port
        """Also where port 0 was asked for."""
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        threading.Thread(target=serve, name="metrics", daemon=True).start()

    def tell(self, reached: Callable[[str], None]) -> None:
        """Tell `reached` the name of each bound that is reached."""
        self._server.reached = reached

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: whoever asks could fill the log."""


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
        """Connections whose request has not come, with when they came."""
        self._asking: OrderedDict[socket.socket, float] = OrderedDict()
        self._of_thread = threading.local()
        super().__init__((str(resolved[0]), port), _Handler)
        self.set_app(self._answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection, or close it if all others are being answered."""
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
        """It is done."""
        with self._lock:
            self._silent.pop(request, None)
            self._asking.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: most errors are peers that went, and the default is a traceback on stderr."""

    def service_actions(self) -> None:
        """End the connections whose time is over."""
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
    """Wake whoever waits for the connection; its thread closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
