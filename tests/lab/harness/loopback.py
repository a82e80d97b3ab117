"""An HTTP server on loopback that lives as long as a block."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class LoopbackServer:
    """A context manager; `handler` answers each request, and has the server as its `owner`.

    Args:
        handler: a class of handlers.
        port: where it listens; 0: a free one.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (handler,), {"owner": self}))
        name = type(self).__name__.lower()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"


def until_interrupted() -> None:
    """Wait for Ctrl-C."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
