"""An agent behind a real door: its folder, its provider, and what was seen of it in between."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.agents.programs import Agent, Start
from tests.agents.scripts import PRINTED, SETTINGS, Script
from tests.conformance.bound_thinking import BoundThinking
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.socket_provider import SocketProvider


@dataclass(slots=True)
class Seen(Observer):
    """What became of each request through the door."""

    trimmed_prompts: list[TrimAnswer] = field(default_factory=list)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Route, outcome and the provider's status of each."""
    reports: int = 0
    """Of what the provider counted."""

    def trimmed(self, call: TrimCall, answer: TrimAnswer, began: int) -> None:
        """Keep it."""
        del call, began
        self.trimmed_prompts.append(answer)

    def reported(self, call: UsageCall, answer: UsageAnswer) -> None:
        """Count it."""
        del call, answer
        self.reports += 1

    def requested(self, route: str, outcome: str, status: int, hidden: int) -> None:
        """Keep it."""
        del hidden
        self.requests.append((route, outcome, status))


@dataclass(slots=True)
class Session:
    """An agent's session in a folder of its own."""

    agent: Agent
    script: Script
    home: Path
    here: Proxied
    seen: Seen
    sockets: SocketProvider
    """The provider's WebSockets, of which each request counts as one over HTTP with all that it goes on from."""
    strays: list[str] = field(default_factory=list)
    """What came to the provider that calls no model."""
    ended: list[subprocess.CompletedProcess[str]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """How many requests the provider had got when each process of the agent began."""

    def run(self, wish: str = "Run the steps", *, goes_on: bool = False) -> None:
        """Run the agent to its end."""
        start = Start(self.home, self.here.url, self.agent.window, wish, goes_on=goes_on)
        self.starts.append(len(self.bodies))
        self.ended.append(self.agent.run(start))

    @property
    def bodies(self) -> list[Any]:
        """What the provider was sent."""
        return self.here.upstream.bodies

    @property
    def steps(self) -> Iterator[tuple[int, Any]]:
        """The requests of the run itself, with their places among all: none of a subagent, none for a title."""
        for place, body in enumerate(self.bodies):
            if self.script.is_step(body):
                yield place, body

    @property
    def shown(self) -> str:
        """What the agent printed last, and with what status it ended."""
        last = self.ended[-1]
        return f"{last.stdout[-2_000:]}{last.stderr[-2_000:]}\nexit status {last.returncode}"


@contextlib.contextmanager
def session(script: Script, home: Path, guard: str = "audit", *, opens: bool = False) -> Iterator[Session]:
    """Serve a door and a provider for an agent.

    Args:
        script: the agent's model.
        home: an empty folder.
        guard: the guard's mode.
        opens: whether the door and the provider open WebSockets for prompts.
    """
    (home / SETTINGS).write_text(f"GITHUB_TOKEN={PRINTED}\n")
    seen = Seen()
    rules, websocket = GuardOptions(mode=guard), "trim" if opens else "refuse"
    with proxied(script, window=script.agent.window, observer=seen, guard=rules, websocket=websocket) as here:
        made = Session(script.agent, script, home, here, seen, SocketProvider(script, upstream=here.upstream))

        async def stray(request: web.Request) -> web.StreamResponse:
            if opens and request.headers.get("upgrade", "").lower() == "websocket":
                return await made.sockets.opened(request)
            made.strays.append(f"{request.method} {request.path} {request.headers.get('upgrade', '')}".strip())
            return web.Response(status=404)

        here.upstream.other = stray
        here.upstream.thinking = BoundThinking() if script.agent.binds else None
        yield made
