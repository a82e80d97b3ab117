"""How the cost of each kind of request grows: with ten times the runs, and with ten times the history of one run.

Four real servers: with few runs and with ten times as many, and with one run and with one of ten times the history.
What is measured is the server's own processor time (the clock that Linux keeps of another process), so other programs
on the machine count little. The two of a pair take turns, some requests at a time, and the median of the turns counts.
The exponent is the logarithm to base ten of the ratio: 0 is a cost that does not grow, 1 one that grows in proportion.
"""

from __future__ import annotations

import math
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import orjson

from prompt_sidecar.v1 import run_pb2, search_pb2
from tests.lab.bench.servers import real
from tests.lab.harness.figures import Section, in_turns, ratio
from tests.lab.harness.processes import free_port
from tests.lab.harness.prompts import Prompts, request, run
from tests.lab.harness.servers import Server

EXPLAIN: Final = 1.1
"""An exponent above which docs/performance.md has to say why."""
LIMIT: Final = 128_000
RUN_BYTES: Final = 6_000
RUN_ITERATIONS: Final = 3
"""Of each of many runs."""
RARE: Final = "xylograph"
"""A word that each run has once."""
COMMON: Final = "queue reader record"
"""Words that most of the text has."""
INDEXED: Final = re.compile(rb"^prompt_sidecar_index_waiting_bytes(?:\{.*\})? 0(?:\.0)?$", re.MULTILINE)
"""The metric that says that nothing waits to be indexed."""
SETTLE_SECONDS: Final = 30.0
PATIENCE: Final = 60

Work = Callable[[int], object]


def processor(process: int) -> float:
    """Seconds of processor time that a process has taken: its clock, by the number that Linux gives it.

    Source: clock_getcpuclockid(3), and the kernel's include/linux/posix-timers.h: the complement of the process id,
    shifted by three, and 2 for the scheduler's count.
    """
    return time.clock_gettime((~process << 3) | 2)


class Filled:
    """A server that has its runs, and what can be asked of it. The number of a request makes it a new one."""

    def __init__(self, prompts: Prompts, runs: int, stack: ExitStack) -> None:
        self.metrics, self.admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        settings = {"TELEMETRY__METRICS_LISTEN": self.metrics, "ADMIN__LISTEN": self.admin}
        self.server: Server = stack.enter_context(real(**settings))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._trim, self._figures = self.server.method(), self.server.method("GetRun")
        self._search, self._end = self.server.method("SearchHistory"), self.server.method("EndRuns")
        self._format = prompts.format
        for number in range(runs):
            salted = prompts.salted(number)
            (self._last,) = replace(salted, lengths=salted.lengths[-1:]).bodies()
            self._trim(request(f"run-{number}", prompts.format, self._last, LIMIT))
        self._run_id = f"run-{runs - 1}"
        self.settle()
        known = orjson.loads(self._get(f"http://{self.admin}/runs.json"))["runs"]
        self._key = next(each["key"] for each in known if each["run_id"] == self._run_id)

    def settle(self) -> None:
        """Wait until no original waits to be indexed; not for ever."""
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            if INDEXED.search(self._get(f"http://{self.metrics}/metrics")) is not None:
                return

    def requests(self) -> Mapping[str, Work]:
        """Each kind by name."""
        asked = run_pb2.GetRunRequest(run_id=self._run_id).SerializeToString()
        pages = f"http://{self.admin}/runs"
        return {
            "GetRun": lambda _: self._figures(asked),
            "the page of a run": lambda _: self._get(f"{pages}/{self._key}"),
            "/runs": lambda _: self._get(pages),
            "/metrics": lambda _: self._get(f"http://{self.metrics}/metrics"),
            "TrimPrompt, one message more": self._call,
            "SearchHistory, a rare word": lambda _: self._find(RARE),
            "SearchHistory, common words": lambda _: self._find(COMMON),
        }

    def end(self, _: int = 0) -> None:
        """End all runs."""
        self._end(run_pb2.EndRunsRequest().SerializeToString())

    def _call(self, number: int) -> None:
        message = b',{"role":"user","content":"Go on with step %d of the plan."}]}' % number
        self._last = self._last.removesuffix(b"]}") + message
        self._trim(request(self._run_id, self._format, self._last, LIMIT))

    def _find(self, query: str) -> None:
        found = self._search(search_pb2.SearchHistoryRequest(run_id=self._run_id, query=query).SerializeToString())
        assert found, query

    def _get(self, url: str) -> bytes:
        with self._opener.open(url, timeout=PATIENCE) as answer:
            read: bytes = answer.read()
        return read


@dataclass(frozen=True, slots=True)
class Grown:
    """Seconds of processor time of one request, at both sizes."""

    one: float
    ten: float

    @property
    def exponent(self) -> float:
        """See the file's docstring."""
        return math.log10(max(ratio(self.ten, self.one), 1e-9))

    @property
    def cells(self) -> tuple[str, str, str]:
        """For a table."""
        above = " (above)" if self.exponent > EXPLAIN else ""
        return f"{self.one * 1e3:,.2f}", f"{self.ten * 1e3:,.2f}", f"{self.exponent:.2f}{above}"

    def facts(self) -> Mapping[str, float]:
        """For the JSON file."""
        return {
            "one_us": round(self.one * 1e6, 1),
            "ten_us": round(self.ten * 1e6, 1),
            "exponent": round(self.exponent, 3),
        }


def exponents(runs: int, iterations: int, turns: int, each: int) -> Section:
    """Measure both, from so many runs and a history of so many iterations, `each` requests in each of the turns."""
    many = with_rare(run(11, RUN_ITERATIONS, RUN_BYTES))
    by_runs = grown(((many, runs), (many, 10 * runs)), turns, each)
    one, ten = (with_rare(run(12, factor * iterations, factor * iterations * 10_000)) for factor in (1, 10))
    by_history = grown(((one, 1), (ten, 1)), turns, each)
    return Section(
        "exponents",
        f"Processor time of the server: {runs:,} and {10 * runs:,} runs of {RUN_BYTES:,} bytes, "
        f"histories of {one.size / 1e6:.1f} and {ten.size / 1e6:.1f} MB",
        ["ms of one request", "runs 1x", "10x", "exponent", "history 1x", "10x", "exponent"],
        [[name, *by_runs[name].cells, *by_history[name].cells] for name in by_runs],
        {
            "runs": runs,
            "iterations": iterations,
            "by_runs": {name: found.facts() for name, found in by_runs.items()},
            "by_history": {name: found.facts() for name, found in by_history.items()},
        },
        [
            f"medians of {turns} turns of {each} requests; EndRuns once, as it ends what it measures",
            "the server's processor time: with what it does meanwhile, such as indexing; not the client's",
        ],
    )


def with_rare(prompts: Prompts) -> Prompts:
    """With one message more behind the first, which has the rare word."""
    message = orjson.dumps({"role": "user", "content": f"The {RARE} came first."})
    slices = [*prompts.slices[:2], message, *prompts.slices[2:]]
    return replace(prompts, slices=slices, lengths=[length + 1 for length in prompts.lengths])


def grown(sizes: tuple[tuple[Prompts, int], tuple[Prompts, int]], turns: int, each: int) -> Mapping[str, Grown]:
    """Each kind of request at both sizes: prompts of runs, and how many runs."""
    with ExitStack() as stack:
        pair = [Filled(prompts, runs, stack) for prompts, runs in sizes]
        return dict(_measured(pair, turns, each))


def _measured(pair: list[Filled], turns: int, each: int) -> Iterator[tuple[str, Grown]]:
    asked = [filled.requests() for filled in pair]
    for name in asked[0]:
        took: tuple[list[float], list[float]] = ([], [])
        for turn in range(turns + 1):  # the first warms up
            for place in in_turns((0, 1), turn):
                seconds = _cost(pair[place], asked[place][name], each, turn * each)
                if turn:
                    took[place].append(seconds)
        yield name, Grown(*map(median, took))
    for filled in pair:
        filled.settle()
    yield "EndRuns, of all runs", Grown(*(_cost(filled, filled.end, 1, 0) for filled in pair))


def _cost(filled: Filled, work: Work, each: int, first: int) -> float:
    """Seconds of one request, of so many."""
    process = filled.server.process.pid
    before = processor(process)
    for number in range(first, first + each):
        work(number)
    return (processor(process) - before) / each
