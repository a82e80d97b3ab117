"""A real sidecar with an HTTP door in this process, in front of a scripted upstream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.http.lifecycle import HttpDoor
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
    server: ServerOptions | None = None,
    clock: Callable[[], float] = time.time,
    core: Runs | None = None,
    grace: float = 0,
    **more: object,
) -> Iterator[Proxied]:
    """Serve a door; prompts for models that are not known have `window` tokens. Its stop waits `grace` seconds."""
    with Upstream(model) as upstream:
        limits = limits or Limits(default_window=window)
        if core is None:
            core = core_of(Runs, clock, limits, rules, guard, KEY)
        modes = Modes(restores=bool(guard and guard.restore))
        with opened(options(upstream.url, **more), core, observer, server, modes, grace=grace) as door:
            yield Proxied(door, upstream, core)


@contextlib.contextmanager
def opened(
    given: HttpOptions,
    core: Runs,
    observer: Observer | None = None,
    server: ServerOptions | None = None,
    modes: Modes | None = None,
    *,
    grace: float = 0,
) -> Iterator[HttpDoor]:
    """Open the door alone; a stop waits `grace` seconds at most for what is not finished."""
    shared = DoorServices(server or ServerOptions(listen="", sweep_interval=3_600), observer)
    door = HttpDoor(given, shared, KEY, modes)
    process = Doors(shared, [door])
    process.bind()
    process.start(core)
    try:
        yield door
    finally:
        process.stop(grace)
