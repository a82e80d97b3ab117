"""A real sidecar with an HTTP door in this process, in front of a scripted upstream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prompt_sidecar.doors.grpc.lifecycle import Server
from prompt_sidecar.doors.grpc.options import ServerOptions
from prompt_sidecar.doors.http.agents import AgentLimits
from prompt_sidecar.doors.http.lifecycle import HttpDoor, Tls
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.doors.http.prompting import Modes
from prompt_sidecar.engine.runs.metering import Rules
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.doors.grpc.serving import core_of
from tests.doors.http.upstream import Model, Upstream

KEY = b"k" * 32


@dataclass(frozen=True, slots=True)
class Proxied:
    """A door and what stands behind it."""

    door: HttpDoor
    upstream: Upstream
    core: Runs

    @property
    def url(self) -> str:
        """The base URL without `/v1`."""
        return self.door.address


def options(upstream: str, **more: object) -> HttpOptions:
    """Options of a door whose providers are all at one address."""
    return HttpOptions(
        listen="127.0.0.1:0",
        openai_upstream=upstream,
        anthropic_upstream=upstream,
        gemini_upstream=upstream,
        bedrock_upstream=upstream,
        **more,  # type: ignore[arg-type]
    )


@contextlib.contextmanager
def proxied(
    model: Model,
    *,
    window: int = 4_500,
    observer: Observer | None = None,
    limits: Limits | None = None,
    guard: GuardOptions | None = None,
    rules: Rules | None = None,
    tls: Tls | None = None,
    agent_limits: AgentLimits | None = None,
    clock: Callable[[], float] = time.time,
    core: Runs | None = None,
    **more: object,
) -> Iterator[Proxied]:
    """Serve a door; prompts for models that are not known have `window` tokens."""
    with Upstream(model) as upstream:
        server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600), observer)
        limits = limits or Limits(default_window=window)
        if core is None:
            core = core_of(Runs, clock, limits, rules, guard, KEY)
        modes = Modes(restores=bool(guard and guard.restore))
        door = HttpDoor(options(upstream.url, **more), KEY, tls, modes, agent_limits)
        server.start(core)
        door.start(server.shared)
        try:
            yield Proxied(door, upstream, core)
        finally:
            door.stop(0)
            server.stop(0)
