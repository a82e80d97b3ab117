"""Load through a real Envoy while one of two sidecars goes: what agents see of it, by each door.

test_replicas.py kills a sidecar under calls by gRPC; here one hangs, and the other doors lose theirs.
"""

from __future__ import annotations

import http.client
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import ge
from pathlib import Path
from typing import Final

import pytest

from tests.cli.running import PATIENCE, Program, program
from tests.doors.envoy.test_replicas import Callers
from tests.doors.envoy.test_through_envoy import WINDOW, sidecar
from tests.doors.envoy.through import (
    Envoy,
    balanced,
    before_pods,
    chart_gateway,
    chat,
    configuration,
    endpoints,
    envoy,
    envoy_binary,
    provider,
)
from tests.real.needing import need

AGENTS: Final = 8
"""Agents at the same time."""
CLOSED: Final = "reset reason: connection termination"
"""What Envoy says in the 503 for a request whose connection was closed before an answer came."""
PROMPT: Final = chat(12, "a line of an answer that nobody will read again\n" * 60)
"""Some 9,000 tokens: over the window of 8,000."""


@dataclass(slots=True)
class Agents:
    """Agents that each send a prompt again and again until they are stopped, each in a run of its own."""

    proxy: Envoy
    failed: list[str] = field(default_factory=list)
    """What became of requests that were not answered with 200."""
    answered: list[int] = field(default_factory=lambda: [0] * AGENTS)
    """Requests of each that have ended."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have them send, until the context ends."""
        threads = [threading.Thread(target=self._send, args=(at,)) for at in range(AGENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until each has had so many more answers."""
        until = [count + more for count in self.answered]
        with self._changed:
            assert self._changed.wait_for(lambda: all(map(ge, self.answered, until)), PATIENCE)

    def _send(self, at: int) -> None:
        while not self._stopping.is_set():
            try:
                status, answer = self.proxy.send(PROMPT, x_prompt_sidecar_run=f"run-{at}")
                became = str(status) if status == 200 else f"{status}: {answer[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                became = repr(error)
            if "200" != became:
                self.failed.append(became)
            with self._changed:
                self.answered[at] += 1
                self._changed.notify_all()


def killed(of: Program) -> None:
    """End a sidecar at once."""
    of.process.kill()
    of.process.wait(PATIENCE)


def stopped(of: Program) -> None:
    """Ask a sidecar to stop, and wait until it has."""
    of.process.send_signal(signal.SIGTERM)
    of.process.wait(PATIENCE)


@contextmanager
def http_doors(folder: Path) -> Iterator[tuple[list[Program], Envoy]]:
    """Two sidecars with an HTTP door behind the chart's gateway, and a provider behind them."""
    need(envoy_binary)
    with ExitStack() as stack:
        upstream = stack.enter_context(provider())
        settings = {
            **WINDOW,
            "SERVER__LISTEN": "",
            "HTTP__LISTEN": "127.0.0.1:0",
            "HTTP__OPENAI_UPSTREAM": f"http://127.0.0.1:{upstream.port}",
        }
        servers, ports = [], []
        for _ in range(2):
            server = stack.enter_context(program(**settings))
            ports.append(int(server.wait_for(r"ready: .*http://127\.0\.0\.1:(\d+)")[1]))
            server.keep_reading()
            servers.append(server)
        yield servers, stack.enter_context(envoy(folder, before_pods(chart_gateway(), ports)))


def test_no_request_fails_when_an_http_door_stops(tmp_path: Path) -> None:
    """What it has begun it ends; what it has not, the other one gets.

    But for one: Envoy may send a request on a kept connection at the moment when the door closes it. Then it cannot
    tell whether a provider has seen it, and does not send it again.
    """
    with http_doors(tmp_path) as (servers, proxy):
        agents = Agents(proxy)
        with agents.running():
            agents.wait_for(3)
            stopped(servers[0])
            agents.wait_for(3)

    assert [] == [each for each in agents.failed if CLOSED not in each]
    assert len(agents.failed) <= 1


def test_a_killed_http_door_loses_only_what_a_provider_may_have_seen(tmp_path: Path) -> None:
    """That is, what it had in hand at that moment; nothing after it."""
    with http_doors(tmp_path) as (servers, proxy):
        agents = Agents(proxy)
        with agents.running():
            agents.wait_for(3)
            killed(servers[0])
            agents.wait_for(1)
            lost = len(agents.failed)
            agents.wait_for(3)

    assert lost == len(agents.failed) <= AGENTS


@pytest.mark.parametrize("end", [killed, stopped])
def test_streams_begin_at_the_other_processor(tmp_path: Path, end: Callable[[Program], None]) -> None:
    """No request fails, and but for those that the sidecar had in hand, each is trimmed."""
    need(envoy_binary)
    with ExitStack() as stack:
        upstream = stack.enter_context(provider())
        pair = [stack.enter_context(sidecar()) for _ in range(2)]
        settings = configuration(pair[0][1], upstream.port)
        cluster = settings["static_resources"]["clusters"][0]
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints([port for _, port, _ in pair])
        proxy = stack.enter_context(envoy(tmp_path, settings))
        agents = Agents(proxy)
        with agents.running():
            agents.wait_for(3)
            end(pair[0][0])
            agents.wait_for(5)
        whole = 0
        while not upstream.seen.empty():
            whole += len(upstream.next().body) > len(PROMPT) * 0.95

    assert [] == agents.failed
    assert whole <= AGENTS


def test_calls_leave_a_sidecar_that_hangs(tmp_path: Path) -> None:
    """After the time per try; until Envoy's health checks have found it, which a test does not wait for."""
    need(envoy_binary)
    with ExitStack() as stack:
        replicas: list[tuple[Program, int]] = []
        for _ in range(2):
            server = stack.enter_context(program("--listen", "127.0.0.1:0", KEY="a key that both have"))
            replicas.append((server, int(server.wait_for(r"ready: listening on .*127\.0\.0\.1:(\d+)")[1])))
            server.keep_reading()
        settings = balanced([port for _, port in replicas])
        manager = settings["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
        assert "30s" == route["retry_policy"]["per_try_timeout"]
        route["retry_policy"]["per_try_timeout"] = "5s"
        between = stack.enter_context(envoy(tmp_path, settings))
        callers = Callers(between.port, AGENTS)
        try:
            callers.wait_for(2)
            replicas[0][0].process.send_signal(signal.SIGSTOP)
            callers.wait_for(2)
        finally:
            callers.stop()
            replicas[0][0].process.send_signal(signal.SIGCONT)
        timeouts = between.figure("upstream_rq_per_try_timeout")

    assert [] == callers.lost
    assert timeouts
