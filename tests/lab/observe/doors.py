"""Agents that come through the other doors, for what those who call by gRPC alone never show.

One sidecar masks, and has an HTTP door and a real Envoy before it; a provider answers at once. One agent sets a base
URL, one goes through Envoy, one uses the Python client with OpenTelemetry's metrics on, gives secrets away and gets
them back, and now and then finds its sidecar down.
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
from pathlib import Path
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from prompt_sidecar.client import Client
from tests.doors.envoy.through import PATIENCE, Provider, chat, configuration, envoy, provider
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack
from tests.lab.observe.stack import Sidecar

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
ANSWER: Final = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}],
        "usage": {"prompt_tokens": 1_500, "completion_tokens": 5, "total_tokens": 1_505},
    }
).encode()


@dataclass(frozen=True, slots=True)
class Doors:
    """What was started."""

    sidecar: Sidecar
    client_metrics: str
    """Host and port at which the client's agent is scraped."""
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
def doors(programs: Programs, folder: Path, collector: int) -> Iterator[Doors]:
    """Start the sidecar, Envoy and the provider."""
    over = threading.Event()
    with ExitStack() as opened:
        upstream = opened.enter_context(provider())
        upstream.pieces = (ANSWER,)
        sidecar = stack.sidecar(
            programs,
            "sidecar-3",
            {
                "guard.mode": "enforce",
                "guard.restore": '["deploy:github_token"]',
                "http.listen": "127.0.0.1:0",
                "http.openai_upstream": f"http://127.0.0.1:{upstream.port}",
                "envoy.listen": "127.0.0.1:0",
                "limits.default_window": "6000",
                "limits.process_bytes": "1GiB",
            },
            collector,
            OTEL_RESOURCE_ATTRIBUTES=attributes("gateway", "shared", 3),
        )
        base = int(sidecar.running.wait_for(_HTTP))
        (folder / "envoy").mkdir()
        proxy = opened.enter_context(
            envoy(folder / "envoy", configuration(int(sidecar.running.wait_for(_EXT_PROC)), upstream.port))
        )
        work = (
            (_through, (over, upstream, base, "base-url")),
            (_through, (over, upstream, proxy.port, "envoy")),
            (_client, (over, sidecar.address)),
        )
        agents = [threading.Thread(target=target, args=given, daemon=True) for target, given in work]
        yield Doors(sidecar, _client_metrics(), agents, over)
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


def _through(over: threading.Event, upstream: Provider, port: int, name: str) -> None:
    """An agent that sends its prompts to a port instead of the provider."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for run in itertools.count():
        for turns in range(1, TURNS):
            if over.wait(THINK):
                return
            headers = {"content-type": "application/json", "x-prompt-sidecar-run": f"{name}-{os.getpid()}-{run}"}
            connection.request("POST", "/v1/chat/completions", chat(turns, RESULT), headers)
            connection.getresponse().read()
            upstream.next()


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
