"""SIGKILL during streams: only requests that ran through the dead process fail, and each next one goes on."""

from __future__ import annotations

import os
import queue
import random
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cli.running import program
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.agents import TOOL, Agent, log_of
from tests.doors.http.upstream import Upstream
from tests.lab.harness.processes import free_port

RUNS = int(os.environ.get("KILLED_RUNS", "20"))
"""Of each format. KILLED_RUNS=50 makes it a hundred in all."""
CALLS = 5
KILLS = max(3, RUNS // 10)
"""Each costs the start of a process: some seconds where the cores are busy."""
AGENTS = 12
"""Runs at once."""
WINDOW = 2_000
LIMIT = 300.0 + 30.0 * RUNS
"""Seconds for all runs of a format, many times what two busy cores need: after them the test fails and says why."""


@dataclass
class Sidecar:
    """The real program, killed and started again at the same address."""

    stack: ExitStack
    upstream: str
    port: int = field(default_factory=free_port)
    up: threading.Event = field(default_factory=threading.Event)
    deaths: int = 0
    process: Any = None

    def start(self) -> None:
        """Start a process; return once it is ready."""
        self.process = self.stack.enter_context(
            program(
                "--listen",
                "",
                "--http",
                f"127.0.0.1:{self.port}",
                KEY="a key that all of them have",
                HTTP__OPENAI_UPSTREAM=self.upstream,
                HTTP__ANTHROPIC_UPSTREAM=self.upstream,
                TELEMETRY__METRICS_LISTEN="",
                LIMITS__DEFAULT_WINDOW=str(WINDOW),
            )
        )
        self.process.wait_for("ready: listening on")
        self.process.keep_reading()
        self.up.set()

    def kill(self) -> None:
        """Kill it in the middle of whatever it does, and start another."""
        self.up.clear()
        self.deaths += 1
        self.process.process.kill()
        self.process.process.wait(PATIENCE)
        self.start()


def _model(body: Any) -> Says:
    """Calls the agent's tool, and every third time the sidecar's first."""
    entries = body["messages"]
    # By the newest number, which a search repeats: of a trimmed prompt in so small a window only the newest call stays.
    calls = max(map(int, re.findall(r"(?:call|own)-(\d+)", str(entries))), default=0)
    last = str(entries[-1]) + str(entries[-2:])
    if calls >= CALLS:
        return Says("Done.")
    if calls % 3 == 2 and "own-" not in last:
        return Says("I search.", [(f"own-{calls}-{len(entries)}", "search_conversation_history", {"query": "build"})])
    return Says("Reading the next log.", [(f"call-{calls + 1}", TOOL, {})])


News = queue.SimpleQueue[Future[str] | None]
"""Runs that have ended; None: a kill is due."""


def _finished(news: News, sidecar: Sidecar, failures: list[bool], asking: Mapping[int, tuple[int, float]]) -> list[str]:
    """Kill when it is due until all runs have ended; return their last texts."""
    texts: list[str] = []
    until = time.monotonic() + LIMIT
    while len(texts) < RUNS:
        try:
            ended = news.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            pytest.fail(
                f"{len(texts)} of {RUNS} runs had ended after {LIMIT:.0f} s, with {sidecar.deaths} of {KILLS} kills "
                f"and {len(failures)} failed requests; under way were "
                + "; ".join(
                    f"run {number} with {entries} entries, for {time.monotonic() - began:.0f} s"
                    for number, (entries, began) in list(asking.items())
                )
                + f"; the log ends with {sidecar.process.lines[-5:]}"
            )
        if ended is None:
            sidecar.kill()
        else:
            texts.append(ended.result())
    return texts


@pytest.mark.parametrize("format", ["openai_chat", "anthropic_messages"])
def test_killed_at_random_points_of_streamed_runs(format: str) -> None:  # noqa: PLR0915 - one story
    """A failed request is sent again, as an SDK would, and its run comes to its end."""
    chance = random.Random(16)
    events, due = 0, sorted(chance.sample(range(6 * RUNS, 50 * RUNS), KILLS))
    lock, stopped = threading.Lock(), threading.Event()
    news: News = queue.SimpleQueue()

    async def before() -> None:
        nonlocal events
        with lock:
            events += 1
            if due and events >= due[0]:
                due.pop(0)
                news.put(None)

    failures: list[bool] = []
    asking: dict[int, tuple[int, float]] = {}

    def agent(number: int) -> str:
        made = Agent(format, True, sidecar_url, [{"role": "user", "content": f"Which build failed in run {number}?"}])
        while not stopped.is_set():
            deaths = sidecar.deaths  # before the wait: a process may die between the two
            assert sidecar.up.wait(LIMIT)
            asking[number] = len(made.history), time.monotonic()
            try:
                heard = made.ask()
            except Exception:
                failures.append(sidecar.deaths > deaths)
                if not failures[-1] and not stopped.is_set():
                    raise  # though no process died
                continue
            finally:
                del asking[number]
            if not heard.calls:
                return heard.text
            made.answer(heard, log_of)
        return "stopped"

    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream(_model))
        upstream.before = before
        sidecar = Sidecar(stack, upstream.url)
        sidecar_url = f"http://127.0.0.1:{sidecar.port}"
        sidecar.start()
        pool = ThreadPoolExecutor(AGENTS)
        try:
            for number in range(RUNS):
                pool.submit(agent, number).add_done_callback(news.put)
            texts = _finished(news, sidecar, failures, asking)
        finally:  # where it has failed, no agent is waited for: what they wait for breaks with the process
            stopped.set()
            sidecar.process.process.kill()
            sidecar.up.set()
            pool.shutdown(cancel_futures=True)

    assert ["Done."] * RUNS == texts
    assert [] == upstream.defects
    assert KILLS == sidecar.deaths
    assert 0 < len(failures) <= KILLS * AGENTS
    assert all(failures)
