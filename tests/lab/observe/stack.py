"""The real components together on loopback: sidecars, the Prometheus that scrapes them, the collector they push to."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from prompt_sidecar.v1 import service_pb2_grpc
from tests.lab.harness.components import ROOT
from tests.lab.harness.processes import Programs, Running, free_port, listens
from tests.lab.observe import prometheus as prom
from tests.lab.observe.dashboards import rule_files

_LISTENS = re.compile(r'ready: listening on ([^\s,"]+)')


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A sidecar that serves."""

    running: Running
    address: str
    """Of its gRPC port."""
    metrics: str
    """Host and port of /metrics."""

    def stub(self) -> service_pb2_grpc.SidecarServiceStub:
        """A client with a channel of its own."""
        return service_pb2_grpc.SidecarServiceStub(self.channel())

    def channel(self) -> grpc.Channel:
        """A channel that takes answers of any size, and no proxy."""
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        return grpc.insecure_channel(self.address, options=options)


def environment(settings: Mapping[str, str], **more: str) -> dict[str, str]:
    """This process's environment without settings of a sidecar or of telemetry, with those that are given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROMPT_SIDECAR_", "OTEL_"))}
    named = {f"PROMPT_SIDECAR_{name.upper().replace('.', '__')}": value for name, value in settings.items()}
    path = os.pathsep.join(filter(None, (str(ROOT), clean.get("PYTHONPATH", ""))))
    return clean | {"PYTHONPATH": path} | named | more


def sidecar(programs: Programs, name: str, settings: Mapping[str, str], collector: int = 0, **more: str) -> Sidecar:
    """Start a sidecar; `collector` is the port that it pushes to, 0: nowhere; `more` stands in its environment."""
    metrics = f"127.0.0.1:{free_port()}"
    chosen = {"server.listen": "127.0.0.1:0", "telemetry.metrics_listen": metrics, **settings}
    if collector:
        more = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
            "OTEL_SERVICE_NAME": "prompt-sidecar",
            **more,
        }
    running = programs.start(name, [sys.executable, "-m", "prompt_sidecar", "serve"], environment(chosen, **more))
    running.wait_until(lambda: _LISTENS.search(running.said()) is not None)
    found = _LISTENS.search(running.said())
    assert found is not None
    return Sidecar(running, found[1], metrics)


def collector(programs: Programs, rotel: Path, *, forward_to: int = 0) -> tuple[Running, int]:
    """Start the collector; it forwards all that it gets to another port, 0: it drops it. Returns it and its port."""
    port = free_port()
    command: list[str | Path] = [
        rotel,
        "start",
        *("--otlp-grpc-endpoint", f"127.0.0.1:{port}"),
        *("--otlp-http-endpoint", f"127.0.0.1:{free_port()}"),
        *("--batch-timeout", "200ms"),
    ]
    if forward_to:
        command += ["--exporter", "otlp", "--otlp-exporter-endpoint", f"http://127.0.0.1:{forward_to}"]
    else:
        command += ["--exporter", "blackhole"]
    running = programs.start("rotel", command, environment({}))
    running.wait_until(lambda: listens(port))
    return running, port


def scraping(
    programs: Programs,
    program: Path,
    folder: Path,
    sidecars: Sequence[Sidecar],
    interval: float,
    *,
    agents: Sequence[str] = (),
) -> prom.Prometheus:
    """Start a Prometheus that scrapes these sidecars and agents, and evaluates our rules."""
    config = prom.configuration([each.metrics for each in sidecars], rule_files(), interval, agents)
    started = prom.start(programs, program, folder, config)
    started.running.wait_until(lambda: started.has_scraped(len(sidecars) + len(agents)))
    return started


def told(prometheus: prom.Prometheus) -> str:
    """What is wrong with its targets, for an error's message."""
    targets = prometheus.api("targets")["activeTargets"]
    return json.dumps([{name: target[name] for name in ("scrapeUrl", "health", "lastError")} for target in targets])
