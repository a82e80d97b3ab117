"""A door that answers single HTTP requests in its own thread, for probes and for people's browsers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from prompt_sidecar.process.starting import listening
from prompt_sidecar.telemetry.scrapes import LOOK_SECONDS, App, BoundedServer, Bounds
from prompt_sidecar.values import split_address


class PagesDoor:
    """A `Door` that serves a WSGI application; subclasses give it one.

    Args:
        setting: the setting that names the address.
        listen: the address.
        answer: the WSGI application.
        bounds: limits of its connections.
        reached: called with the name of each bound that is reached.
    """

    early: Final = False
    addresses: Final = ()

    def __init__(self, setting: str, listen: str, answer: App, bounds: Bounds, reached: Callable[[str], None]) -> None:
        self._setting = setting
        self._listen = listen
        self._app = answer
        self._bounds = bounds
        self._reached = reached
        self._server: BoundedServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The actual port, also if port 0 was configured."""
        assert self._server is not None
        return self._server.server_port

    @property
    def address(self) -> str:
        """The address it listens at."""
        return f"{self._listen.rpartition(':')[0]}:{self.port}"

    def bind(self) -> None:
        """Bind the address; nothing is answered before `start`. Raises StartError."""
        with listening(self._setting, self._listen):
            self._server = BoundedServer(split_address(self._listen), self._app, self._bounds)
        self._server.reached = self._reached

    def start(self) -> None:
        """Start to answer."""
        assert self._server is not None
        serve = partial(self._server.serve_forever, LOOK_SECONDS)
        self._thread = threading.Thread(target=serve, name=self._setting.partition(".")[0], daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Do nothing: it answers until it is stopped."""

    def stop(self, grace: float) -> bool:  # noqa: ARG002 - an answer is a matter of milliseconds
        """Stop answering."""
        if self._thread is not None:
            assert self._server is not None
            self._server.shutdown()
            self._thread = None
        if self._server is not None:
            self._server.server_close()
        return True
