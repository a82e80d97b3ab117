"""The real components together on loopback: sidecars, the Prometheus that scrapes them, the collector they push to."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from prompt_sidecar.v1 import service_pb2_grpc
from tests.lab.harness.components import ROOT
from tests.lab.harness.processes import Programs, Running, free_port, listens
from tests.lab.harness.servers import READY, WIDE, environment

JOB = "prompt-sidecar"
"""What Prometheus calls our targets."""
AGENTS = "agents"
"""And programs that use our client."""
SCRAPE_SECONDS = 2.0
"""Between two scrapes: fine enough that minutes make a line."""
_SECONDS = 30.0


RULES = ROOT / "dashboards" / "rules"


def rule_files(folder: Path = RULES) -> list[Path]:
    """Every file of rules; tests of rules stand in a folder of their own."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


class QueryFailed(Exception):
    """Prometheus refused a query; the message is its own."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, and its values as (time, value)."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """Its newest value."""
        return self.points[-1][1]


class Prometheus:
    """A server that runs, and its HTTP interface."""

    def __init__(self, running: Running, port: int) -> None:
        self.running = running
        self.url = f"http://127.0.0.1:{port}"
        # A proxy of the environment has no business between two processes of one machine.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def api(self, path: str, **parameters: str | float) -> Any:
        """The `data` of an answer of the interface v1.

        Raises:
            QueryFailed: Prometheus said no.
        """
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with self._open(url, timeout=_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryFailed(f"{parameters.get('query', path)}: {json.load(error)['error']}") from error

    def instant(self, query: str, at: float) -> list[Series]:
        """Evaluate a query at one time."""
        data = self.api("query", query=query, time=at)
        if data["resultType"] == "scalar":
            return [Series({}, [_point(data["result"])])]
        return [Series(found["metric"], [_point(found["value"])]) for found in data["result"]]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Evaluate a query over a stretch of time."""
        data = self.api("query_range", query=query, start=start, end=end, step=step)
        return [Series(found["metric"], [_point(point) for point in found["values"]]) for found in data["result"]]

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            with self._open(f"{self.url}/-/ready", timeout=_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def has_scraped(self, targets: int) -> bool:
        """Whether so many targets have been scraped."""
        return targets == len([target for target in self.api("targets")["activeTargets"] if target["health"] == "up"])


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def configuration(targets: Sequence[str], rules: Sequence[Path], interval: float, agents: Sequence[str] = ()) -> str:
    """What prometheus.yml says; JSON is YAML. Scrapes and evaluations come at the same interval, in seconds.

    `targets` are sidecars, `agents` programs with a client of ours.
    """
    every = f"{round(interval * 1000)}ms"
    jobs = {JOB: targets, AGENTS: agents} if agents else {JOB: targets}
    return json.dumps(
        {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": list(found)}]} for name, found in jobs.items()
            ],
        },
        indent=2,
    )


def start(programs: Programs, program: Path, folder: Path, config: str) -> Prometheus:
    """Start a Prometheus on loopback, with its data in `folder`."""
    file = folder / "prometheus.yml"
    file.write_text(config, encoding="utf-8")
    port = free_port()
    command: list[str | Path] = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]
    started = Prometheus(programs.start("prometheus", command), port)
    started.running.wait_until(started.is_ready)
    return started


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
        return grpc.insecure_channel(self.address, options=WIDE)


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
    return Sidecar(running, running.wait_for(READY), metrics)


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
) -> Prometheus:
    """Start a Prometheus that scrapes these sidecars and agents, and evaluates our rules."""
    config = configuration([each.metrics for each in sidecars], rule_files(), interval, agents)
    started = start(programs, program, folder, config)
    started.running.wait_until(lambda: started.has_scraped(len(sidecars) + len(agents)))
    return started


def summary(prometheus: Prometheus) -> str:
    """What is wrong with its targets, for an error's message."""
    targets = prometheus.api("targets")["activeTargets"]
    return json.dumps([{name: target[name] for name in ("scrapeUrl", "health", "lastError")} for target in targets])
