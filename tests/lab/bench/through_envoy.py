"""What the external processor adds to a request through Envoy.

Three Envoys, with the filter, without usage, and without the filter, take turns on the same run, before one provider
that answers at once. The difference at the median is what a user pays: the body to the sidecar and back, the trim, and
Envoy's own work for both.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.doors.envoy.through import PATIENCE, Envoy, configuration, envoy, envoy_binary, provider
from tests.lab.harness import counting
from tests.lab.harness.components import Missing
from tests.lab.harness.figures import Section, Spread, milliseconds
from tests.lab.harness.prompts import Prompts

_PATHS = {"openai_chat": "/v1/chat/completions", "anthropic_messages": "/v1/messages"}
_SIZES = ((60_000, 130_000, "some 91 kB"), (850_000, 1_150_000, "some 1 MB"))
"""Bytes of the bodies that are told apart."""
_PORT = re.compile(r"external processor.* 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, slots=True)
class Processor:
    """A sidecar: the port of its external processor, and its process."""

    port: int
    pid: int

    def cpu(self) -> float:
        """Return the processor time that it has taken, in seconds; where the system does not tell: 0."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def processor(*, usage: bool, **settings: str) -> Iterator[Processor]:
    """Run the program, with more settings by their variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PROMPT_SIDECAR_", "OTEL_"))}
    clean |= {"PROMPT_SIDECAR_TOKENS__COUNTER": counting.chosen, "PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN": ""}
    clean |= {f"PROMPT_SIDECAR_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "prompt_sidecar", "serve", "--listen", "127.0.0.1:0", "--ext-proc", "127.0.0.1:0"]
    command += ["--set", f"envoy.usage={str(usage).lower()}"]
    with subprocess.Popen(command, env=clean, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = 0
        try:
            for line in process.stderr:
                if found := _PORT.search(line):
                    port = int(found[1])
                if "ready: listening" in line:
                    break
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Processor(port, process.pid)
        finally:
            process.terminate()


class _Agent:
    """An agent with one connection that stays open."""

    def __init__(self, proxy: Envoy, path: str, limit: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
        self._path = path
        self._headers = {"content-type": "application/json", "x-prompt-sidecar-context-window": str(limit)}

    def send(self, run: str, body: bytes) -> float:
        """Send a prompt; return the seconds until the whole answer was there."""
        began = perf_counter()
        self._connection.request("POST", self._path, body, self._headers | {"x-prompt-sidecar-run": run})
        response = self._connection.getresponse()
        response.read()
        assert response.status == http.client.OK
        return perf_counter() - began


def through_envoy(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times each way, after one round that warms up."""
    try:
        envoy_binary()
    except Missing as error:
        return Section("envoy", "Through Envoy", ("way",), [], {}, [str(error)])
    ways = ("Envoy alone", "trimmed, usage off", "trimmed, usage on")
    times: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        upstream = stack.enter_context(provider())
        agents = []
        for number, (usage, filtered) in enumerate(((False, False), (False, True), (True, True))):
            port = stack.enter_context(processor(usage=usage)).port if filtered else 9
            own = folder / str(number)
            own.mkdir()
            proxy = stack.enter_context(envoy(own, configuration(port, upstream.port, filtered=filtered)))
            agents.append(_Agent(proxy, _PATHS[prompts.format], limit))
        for number in range(rounds + 1):
            salted = prompts.salted(number)
            for index, body in enumerate(salted.bodies()):
                turn = list(zip(ways, agents, strict=True))
                for way, agent in turn if (index + number) % 2 else turn[::-1]:
                    took = agent.send(f"envoy-{number}", body)
                    upstream.next()
                    for low, high, size in _SIZES:
                        if number and low <= len(body) <= high:
                            times.setdefault((way, size), []).append(took)
    rows, facts = [], {}
    for _, _, size in _SIZES:
        alone = times.get((ways[0], size))
        for way in ways:
            if alone is None or (way, size) not in times:
                continue
            spread, base = Spread.of(times[way, size]), Spread.of(alone)
            added = spread.p50 - base.p50
            rows.append((f"{size}, {way}", milliseconds(spread.p50), milliseconds(spread.p99), milliseconds(added)))
            facts[f"{size}, {way}"] = {**spread.facts(), "added_p50_us": round(added * 1e6, 1)}
    return Section(
        "envoy",
        "Through Envoy: a request and its answer (ms)",
        ("body and way", "p50", "p99", "added p50"),
        rows,
        facts,
        [f"{rounds} rounds of {prompts.name}; three Envoys, two sidecars, provider and agent share this machine"],
    )
