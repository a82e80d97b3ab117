"""A listener with an engine behind it, and a client that sends what a browser would not."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.doors.admin.listener import Admin
from prompt_sidecar.doors.admin.options import AdminOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.promises.engine import Engine

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(slots=True)
class Served:
    """A listener that answers."""

    admin: Admin
    shared: DoorServices
    reached: list[str]

    @property
    def port(self) -> int:
        """Its port."""
        return self.admin.port

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Got:
        """Ask for a path; headers are written with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return Got(
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read().decode(),
            )
        finally:
            connection.close()


class Seen(Observer):
    """Keeps the bounds that are reached; `foreign` is called at each refusal of a page of another site."""

    def __init__(self, foreign: Callable[[str, str], None]) -> None:
        self.bounds: list[str] = []
        self._foreign = foreign

    def reached(self, bound: str) -> None:
        """Keep it."""
        self.bounds.append(bound)

    def foreign(self, listener: str, header: str) -> None:
        """Hand it on."""
        self._foreign(listener, header)


@contextmanager
def served(
    engine: Engine, options: AdminOptions | None = None, foreign: Callable[[str, str], None] | None = None
) -> Iterator[Served]:
    """Serve the pages of an engine's runs."""
    seen = Seen(foreign or (lambda _, __: None))
    shared = DoorServices(ServerOptions(listen=""), seen)
    shared.use_cases = UseCases(engine.runs)
    admin = Admin(options or AdminOptions(listen="127.0.0.1:0"), shared)
    admin.bind()
    admin.start()
    try:
        yield Served(admin, shared, seen.bounds)
    finally:
        admin.stop(0)
