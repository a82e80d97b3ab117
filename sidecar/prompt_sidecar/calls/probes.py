"""`/healthz`, `/readyz` and `/startupz` over HTTP, for the probes of Kubernetes and of load balancers.

gRPC's health service answers on the server's own listeners, which in a pod may be a unix socket or loopback: the
kubelet reaches neither, and a probe that starts a program costs a second of a processor each time. This listener has no
other paths, answers only yes or no, and needs no authentication.

- `/healthz`: the process answers. What it waits for does not matter, as a restart would not help.
- `/startupz`: the vocabulary that most prompts are counted with is loaded.
- `/readyz`: it is, and the sidecar does not drain. Nothing else: that a store is down must not unready every agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from prompt_sidecar.calls.pages import PagesDoor
from prompt_sidecar.calls.readiness import Readiness, State
from prompt_sidecar.telemetry.scrapes import Bounds, not_found

CONNECTIONS: Final = 16
"""Connections at a time: a kubelet has three probes, and load balancers some."""
SECONDS: Final = 5.0
"""Time limit of one connection, in seconds; a probe takes much less."""


class Probes(PagesDoor):
    """A `Door` that answers probes from `bind` on, until it is stopped."""

    def __init__(self, listen: str, readiness: Readiness, reached: Callable[[str], None]) -> None:
        """`reached` is called with the name of each bound that is reached."""
        bounds = Bounds(CONNECTIONS, "server.probes", SECONDS, "server.probe_timeout")
        super().__init__("server.health_listen", listen, self._answer, bounds, reached)
        self._readiness = readiness

    @property
    def notice(self) -> str:
        """Its address, for the log."""
        return f"probes over HTTP: listening on {self.address}"

    def bind(self) -> None:
        """Bind the address, and answer that the process is alive."""
        super().bind()
        super().start()

    def start(self) -> None:
        """Do nothing: it answers since `bind`."""

    def _answer(self, environment: Any, start: Any) -> Iterable[bytes]:
        state = self._readiness.state
        good = {
            "/healthz": True,
            "/startupz": state is not State.STARTING,
            "/readyz": state is State.SERVING,
        }.get(environment["PATH_INFO"])
        if good is None:
            return not_found(start)
        start("200 OK" if good else "503 Service Unavailable", [("content-type", "text/plain")])
        return [b"ok\n" if good else f"{state.name.lower()}\n".encode()]
