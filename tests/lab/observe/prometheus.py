"""A real Prometheus: its configuration, its process, and its answers as numbers."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.harness.processes import Programs, Running, free_port

JOB = "prompt-sidecar"
"""What Prometheus calls our targets."""
AGENTS = "agents"
"""And programs that use our client."""
_SECONDS = 30.0


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
