"""An agent behind a real door: its folder, its provider, and what was seen of it in between."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import Handled
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.agents.programs import Agent, Start
from tests.agents.scripts import PRINTED, PRINTS, PROGRAM, SETTINGS, Script
from tests.conformance.bound_thinking import BoundThinking
from tests.doors.http.path_models import WAYS, PathUpstream
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.socket_provider import SocketProvider
from tests.doors.http.upstream import Model


@dataclass(slots=True)
class Seen(Observer):
    """What became of each request through the door."""

    trimmed_prompts: list[TrimAnswer] = field(default_factory=list)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    """Route, outcome and the provider's status of each."""
    asked: list[Handled] = field(default_factory=list)
    """What was done about each request."""
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

    def handled(self, handled: Handled) -> None:
        """Keep it."""
        self.asked.append(handled)

    def requested(self, route: str, outcome: str, status: int, hidden: int) -> None:
        """Keep it."""
        del hidden
        self.requests.append((route, outcome, status))


class ByPath:
    """A provider whose paths name the model: Gemini or Bedrock, whole or streamed."""

    def __init__(self, model: Model) -> None:
        self.provider = PathUpstream(model, WAYS["gemini"])

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        """Answer a request for an answer of the model; None: it is none."""
        events = request.query.get("alt") == "sse"
        name = {
            "generateContent": "gemini",
            "streamGenerateContent": "gemini-sse" if events else "gemini-array",
            "converse": "bedrock",
            "converse-stream": "bedrock-stream",
        }.get(re.split("[:/]", request.path)[-1])
        if name is None:
            return None
        self.provider.way = WAYS[name]
        return await self.provider(request)


@dataclass(slots=True)
class Session:
    """An agent's session in a folder of its own."""

    agent: Agent
    script: Script
    home: Path
    start: Start
    here: Proxied
    seen: Seen
    sockets: SocketProvider
    """The provider's WebSockets, of which each request counts as one over HTTP with all that it goes on from."""
    strays: list[str] = field(default_factory=list)
    """What came to the provider that calls no model."""
    ended: list[subprocess.CompletedProcess[str]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """How many requests the provider had got when each process of the agent began."""
    by_path: ByPath | None = None
    """The provider, where its API names the model in the path."""

    def run(self, wish: str = "Run the steps", *, goes_on: bool = False) -> None:
        """Run the agent to its end."""
        start = replace(self.start, wish=wish, goes_on=goes_on)
        self.starts.append(len(self.bodies))
        self.ended.append(self.agent.run(start))

    @property
    def bodies(self) -> list[Any]:
        """What the provider was sent."""
        return self.here.upstream.bodies if self.by_path is None else self.by_path.provider.bodies

    @property
    def defects(self) -> list[str]:
        """For what the provider refused requests."""
        return self.here.upstream.defects if self.by_path is None else self.by_path.provider.defects

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
def session(
    script: Script, home: Path, guard: str = "audit", start: Start | None = None, *, opens: bool = False
) -> Iterator[Session]:
    """Serve a door and a provider for an agent.

    Args:
        script: the agent's model.
        home: an empty folder.
        guard: the guard's mode.
        start: where the agent finds its packages; None: the pinned ones.
        opens: whether the door and the provider open WebSockets for prompts.
    """
    (home / PRINTS).write_text(PROGRAM)
    (home / SETTINGS).write_text(f"GITHUB_TOKEN={PRINTED}\n")
    seen = Seen()
    agent = script.agent
    authority = home / "authority.pem"
    server = _certified(authority, home / "authority.key") if agent.path == "bedrock" else None
    rules, websocket = GuardOptions(mode=guard), "trim" if opens else "refuse"
    with proxied(script, window=agent.window, observer=seen, guard=rules, server=server, websocket=websocket) as here:
        url = here.url if server is None else f"https://localhost:{here.door.port}"
        start = start or Start(home, url, agent.window, "")
        start = replace(start, home=home, url=url, window=agent.window, authority=str(authority) if server else "")
        sockets = SocketProvider(script, upstream=here.upstream)
        made = Session(agent, script, home, start, here, seen, sockets)
        made.by_path = ByPath(script) if agent.path in ("gemini", "bedrock") else None

        async def other(request: web.Request) -> web.StreamResponse:
            if opens and request.headers.get("upgrade", "").lower() == "websocket":
                return await made.sockets.opened(request)
            answer = None if made.by_path is None else await made.by_path(request)
            if answer is not None:
                return answer
            made.strays.append(f"{request.method} {request.path} {request.headers.get('upgrade', '')}".strip())
            return web.Response(status=404)

        here.upstream.other = other
        here.upstream.thinking = BoundThinking() if script.agent.binds else None
        yield made


def _certified(certificate: Path, key: Path) -> ServerOptions:
    """Options of a server with a certificate of its own making: Amazon's SDK sends a bearer key over TLS alone."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program to make certificates")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = ["openssl", "req", "-x509", *curve, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return ServerOptions(listen="", sweep_interval=3_600, tls_certificate=str(certificate), tls_key=str(key))
