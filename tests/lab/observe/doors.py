"""Agents that come through the other doors, for what those who call by gRPC alone never show.

One sidecar masks, and has an HTTP door and a real Envoy before it. Agents of three APIs set a base URL, one on a
WebSocket, and one goes through Envoy; their provider counts, and is overloaded now and then (`agents.py`). One uses the
Python client with OpenTelemetry's metrics on, gives secrets away and gets them back, and now and then finds its sidecar
down.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from prompt_sidecar.client import Client
from tests.doors.envoy.through import PATIENCE, chat, configuration, envoy
from tests.doors.http.socket_provider import SocketProvider
from tests.doors.http.upstream import Upstream
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack
from tests.lab.observe.agents import Agent, Chat, Messages, Model, Responses, threads
from tests.lab.observe.stack import Sidecar

KEY: Final = "6b" * 32
"""Of the sidecar with the store."""
SECRET: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
_MASK: Final = re.compile(r"⟦github_token:\w+⟧")
_HTTP: Final = r"ready: listening on [^\n]*http://127\.0\.0\.1:(\d+)"
_EXT_PROC: Final = r"external processor[^\n]* 127\.0\.0\.1:(\d+)"
THINK: Final = 0.4
"""Seconds between two prompts of an agent."""
TURNS: Final = 30
"""Of a run; then another begins."""
DOWN_EVERY: Final = 12
"""Prompts of the client's agent between two that find nobody."""
RESULT: Final = "12:00:01 GET /items 200 in 3 ms, served by worker " * 12


@dataclass(frozen=True, slots=True)
class Doors:
    """What was started."""

    sidecar: Sidecar
    client_metrics: str
    """Host and port at which the client's agent is scraped."""
    pages: str
    """Where its pages of runs are."""
    through: Sequence[Agent]
    """The agents that have no client."""
    _agents: Sequence[threading.Thread]
    _over: threading.Event

    def begin(self) -> None:
        """Let the agents work."""
        for agent in self._agents:
            agent.start()

    def end(self) -> None:
        """Have them stop, and wait for it."""
        self._over.set()
        for agent in self._agents:
            agent.join()


@contextmanager
def doors(programs: Programs, folder: Path, collector: int, seed: int, store: str) -> Iterator[Doors]:
    """Start the sidecar, whose store is at `store`, Envoy and the provider, whose chance `seed` decides."""
    over = threading.Event()
    with ExitStack() as opened:
        upstream = opened.enter_context(Upstream(Model(seed)))
        upstream.other = partial(_other, SocketProvider(Model(seed + 1), upstream))
        sidecar = stack.sidecar(
            programs,
            "sidecar-3",
            {
                "guard.mode": "enforce",
                "guard.restore": '["deploy:github_token"]',
                "http.listen": "127.0.0.1:0",
                "http.openai_upstream": upstream.url,
                "http.anthropic_upstream": upstream.url,
                "admin.listen": "127.0.0.1:0",
                "envoy.listen": "127.0.0.1:0",
                "store.url": store,
                "key": KEY,
                "limits.default_window": "6000",
                "limits.process_bytes": "1GiB",
            },
            collector,
            OTEL_BSP_SCHEDULE_DELAY="500",
            OTEL_RESOURCE_ATTRIBUTES=attributes("gateway", "shared", 3),
        )
        base = int(sidecar.running.wait_for(_HTTP))
        (folder / "envoy").mkdir()
        proxy = opened.enter_context(
            envoy(folder / "envoy", configuration(int(sidecar.running.wait_for(_EXT_PROC)), upstream.port))
        )
        through = [
            (Agent("chat", Chat("gpt-4o"), base, over), Agent.work),
            (Agent("messages", Messages("claude-sonnet-4-5"), base, over), Agent.work),
            (Agent("responses", Responses("gpt-5"), base, over), Agent.work),
            (Agent("socket", Responses("gpt-5-mini"), base, over), Agent.work_on_a_socket),
            (Agent("envoy", Chat("gpt-4o-mini"), proxy.port, over), Agent.work),
        ]
        work = threads(through)
        work.append(threading.Thread(target=_unknown, args=(over, base), daemon=True))
        work.append(threading.Thread(target=_client, args=(over, sidecar.address), daemon=True))
        pages = sidecar.running.wait_for(r"pages of runs at (http://[^/]+)")
        yield Doors(sidecar, _client_metrics(), pages, [agent for agent, _ in through], work, over)
        over.set()


def attributes(workload: str, namespace: str, number: int) -> str:
    """The resource of a sidecar, as deploy/kubernetes has the downward API fill it in."""
    pod = f"{workload}-6f7d9c8b5-{number:05x}"
    return f"k8s.namespace.name={namespace},k8s.deployment.name={workload},k8s.pod.name={pod},k8s.node.name=node-1"


def _client_metrics() -> str:
    """Serve the metrics of this process, which is the client's agent; return where."""
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    port = free_port()
    start_http_server(port, "127.0.0.1")
    return f"127.0.0.1:{port}"


async def _other(sockets: SocketProvider, request: web.Request) -> web.StreamResponse:
    """Answer what is no prompt of a known API over HTTP."""
    if request.headers.get("upgrade", "").lower() == "websocket":
        return await sockets.opened(request)
    await request.read()
    return web.json_response({})


def _unknown(over: threading.Event, port: int) -> None:
    """A program with large prompts for an API that the sidecar does not know."""
    body = json.dumps({"thoughts": [RESULT * 200]})
    while not over.wait(DOWN_EVERY * THINK):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/v9/thoughts", body, {"content-type": "application/json"})
        connection.getresponse().read()
        connection.close()


def _client(over: threading.Event, address: str) -> None:
    """An agent with our client: its tools' results hold a secret, and its tool `deploy` needs it."""
    with Client(address, deadline=PATIENCE) as client, Client(f"127.0.0.1:{free_port()}", deadline=PATIENCE) as lost:
        for run in itertools.count():
            run_id = f"client-{os.getpid()}-{run}"
            for turns in range(1, TURNS):
                if over.wait(THINK):
                    return
                messages: list[Any] = json.loads(chat(turns, f"TOKEN={SECRET}\n{RESULT}"))["messages"]
                if turns % DOWN_EVERY == 0:
                    lost.trim(run_id, messages, format="openai_chat")
                    continue
                done = client.trim(run_id, messages, format="openai_chat", context_window=6_000)
                mask = _MASK.search(json.dumps(done.prompt, ensure_ascii=False))
                assert mask is not None, "the prompt was not masked"
                arguments = json.dumps({"token": mask[0]})
                client.restore_secrets(run_id, [("deploy", arguments), ("http_post", arguments)])
            client.end_run(run_id)
