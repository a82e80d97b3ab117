"""`/healthz`, `/readyz` and `/startupz` over HTTP, for the probes of Kubernetes and of load balancers.

gRPC's health service answers on the server's own listeners, which in a pod may be a unix socket or loopback: the
kubelet reaches neither, and a probe that starts a program costs a second of a processor each time. This listener has
nothing else, tells nothing but yes or no, and needs no authentication.

- `/healthz`: the process answers. What it waits for does not matter: a restart would not help.
- `/startupz`: the vocabulary that most prompts are counted with is loaded.
- `/readyz`: it is, and the sidecar does not drain. Nothing else: that a store is down must not unready every agent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from prompt_sidecar.process.starting import StartError
from prompt_sidecar.telemetry.scrapes import LOOK_SECONDS, BoundedServer, Bounds, not_found
from prompt_sidecar.values import split_address

CONNECTIONS: Final = 16
"""Connections at a time: a kubelet has three probes, and load balancers some."""
SECONDS: Final = 5.0
"""Of one connection; a probe asks and goes."""


class Probes:
    """Answers probes at an address. Raises StartError if it is not available."""

    def __init__(self, listen: str, reached: Callable[[str], None]) -> None:
        """Listen; `reached` is called with the name of each bound that is reached."""
        self.started = False
        """Whether the vocabulary is loaded."""
        self.draining = False
        bounds = Bounds(CONNECTIONS, "server.probes", SECONDS, "server.probe_timeout")
        try:
            self._server = BoundedServer(split_address(listen), self._answer, bounds)
        except OSError as error:
            raise StartError(
                f"server.health_listen {listen}: cannot listen there: {error.strerror}; free the address or set another"
            ) from None
        self._server.reached = reached
        self.port = self._server.server_port
        """The actual port, also if port 0 was configured."""
        threading.Thread(target=partial(self._server.serve_forever, LOOK_SECONDS), name="probes", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environment: Any, start: Any) -> Iterable[bytes]:
        good = {
            "/healthz": True,
            "/startupz": self.started,
            "/readyz": self.started and not self.draining,
        }.get(environment["PATH_INFO"])
        if good is None:
            return not_found(start)
        start("200 OK" if good else "503 Service Unavailable", [("content-type", "text/plain")])
        return [b"ok\n" if good else b"draining\n" if self.draining else b"starting\n"]
