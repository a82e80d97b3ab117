"""What telemetry takes: of a call, of a caller at its worst, and of other threads while /metrics is scraped."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from time import perf_counter, thread_time
from typing import Any, Final

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from prompt_sidecar.app import start
from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.config.settings import load
from prompt_sidecar.doors.grpc.callers import CALLER as CALLED_BY
from prompt_sidecar.doors.grpc.servicer import SERVICE, Servicer
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import Running, assemble, partial_processor
from prompt_sidecar.telemetry.pushed import WithOurs
from tests.lab.bench.inprocess import runs
from tests.lab.bench.servers import real
from tests.lab.harness.beside import beside, ticking
from tests.lab.harness.figures import Section, Spread, best_of, milliseconds, ratio, verdict, views
from tests.lab.harness.processes import free_port
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, Prompts, raced, request

TARGET = 0.13
"""Of the processor time of a call. Spans are the SDK's, which take a thirtieth more than ones of our own did."""
METHOD = f"{SERVICE}/TrimPrompt"
METADATA = (("user-agent", "bench"), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))


class _Pushed(WithOurs, InMemoryMetricReader):
    """Takes metrics as an exporter does."""


class _Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - it forgets them
        return SpanExportResult.SUCCESS


class _Context:
    """A call that nobody gives up, as far as the servicer asks."""

    @staticmethod
    def is_active() -> bool:
        return True

    @staticmethod
    def time_remaining() -> None:
        return None


def _metrics(*more: MetricReader, spans: bool = False) -> Running:
    return assemble(
        TelemetryOptions(),
        resource=Resource.get_empty(),
        readers=more,
        processor=partial_processor(lambda _: _Nowhere()) if spans else None,
    )


CONTENDERS: dict[str, Callable[[], Running]] = {
    "none": Running,
    "/metrics": _metrics,
    "/metrics, OTLP metrics, every call traced": lambda: _metrics(_Pushed(), spans=True),
}


class _Contender:
    """A servicer and whom it tells."""

    def __init__(self, running: Running) -> None:
        self.observer: Observer = running.observer
        self.core = runs()
        self.servicer = Servicer(UseCases(self.core, observer=self.observer), ACCEPT_BYTES)
        self.context: Any = _Context()

    def call(self, raw: bytes) -> float:
        """Serve a call as the guard does; its processor time."""
        began = thread_time()
        called = self.observer.begun(METHOD, perf_counter(), lambda: METADATA, traced=True)
        self.observer.waited(0.0001)
        self.servicer.trim_prompt(raw, self.context)
        self.observer.ended(called, "OK")
        return thread_time() - began


@contextmanager
def _contenders() -> Iterator[dict[str, _Contender]]:
    running = {name: make() for name, make in CONTENDERS.items()}
    try:
        yield {name: _Contender(each) for name, each in running.items()}
    finally:
        for each in running.values():
            each.stop()


def telemetry(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Tell what telemetry takes; of each call the best of its rounds, and the first round only warms up."""
    CALLED_BY.set(CALLER)
    found: dict[str, list[list[float]]] = {name: [] for name in CONTENDERS}
    with _contenders() as contenders:
        for number in range(rounds + 1):
            costs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            for turn, body in enumerate(prompts.bodies()):
                raw = request(f"telemetry-{number}", prompts.format, body, limit)
                names = list(contenders)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    costs[name].append(contenders[name].call(raw))
            for name, spent in costs.items():
                if number:
                    found[name].append(spent)
    best = {name: best_of(each) for name, each in found.items()}
    without = best.pop("none")
    rows = [["none", milliseconds(median(without)), "", ""]]
    facts: dict[str, object] = {"rounds": rounds, "none": {"p50_us": round(median(without) * 1e6, 1)}}
    for name, spent in best.items():
        added = median(one - other for one, other in zip(spent, without, strict=True))
        share = ratio(added, median(spent))
        met = f"{verdict(share, TARGET)} {TARGET:.0%}"
        rows.append([name, milliseconds(median(spent)), milliseconds(added), f"{share:.1%} ({met})"])
        facts[name] = {
            "p50_us": round(median(spent) * 1e6, 1),
            "added_us": round(added * 1e6, 1),
            "share": round(share, 4),
        }
    return Section(
        "telemetry",
        f"Telemetry's share of a warm TrimPrompt: {prompts.name}, limit {limit:,} tokens, {rounds} rounds",
        ["ms of processor time, medians", "whole call", "added", "share"],
        rows,
        facts,
        ["The call without gRPC, whose own work would only make the share smaller; the export itself is not in it."],
    )


MOVED_TARGET = 0.05
"""By how much the 99th percentile may move."""
SCRAPE_SECONDS = 1.0


def scraped(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run to a process without telemetry and to one that is scraped and exports to nobody.

    It is scraped every second, fifteen times as often as is usual.
    """
    metrics = f"127.0.0.1:{free_port()}"
    pushing = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    scrapes: list[float] = []
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def scrape(over: threading.Event) -> None:
        while not over.wait(SCRAPE_SECONDS):
            began = perf_counter()
            with suppress(OSError), opener.open(f"http://{metrics}/metrics", timeout=10) as answer:
                answer.read()
                scrapes.append(perf_counter() - began)

    with (
        real(OTEL_SDK_DISABLED="true") as off,
        real(TELEMETRY__METRICS_LISTEN=metrics, **pushing) as on,
        beside(scrape),
    ):
        ways = {"plain": off.method(), "watched": on.method()}
        found = raced(ways, prompts, rounds, lambda run, body: request(f"scraped-{run}", prompts.format, body, limit))
    rows: list[list[str]] = []
    facts: dict[str, object] = {"limit": limit, "rounds": rounds, "scrapes": len(scrapes)}
    without = views(found["plain"])
    for name, watched in views(found["watched"]).items():
        plain, over = without[name], watched.over(without[name])
        rows += [
            [name, "no telemetry", *plain.cells],
            ["", "scraped, collector down", *watched.cells],
            ["", "moved by", moved(over.p50), f"{moved(over.p99)} (target {MOVED_TARGET:.0%})"],
        ]
        facts[name] = {
            "plain": plain.facts(),
            "watched": watched.facts(),
            "ratio_p50": round(over.p50, 3),
            "ratio_p99": round(over.p99, 3),
        }
    took = Spread.of(scrapes) if scrapes else Spread(0, 0)
    facts["scrape"] = took.facts()
    counts = f"{rounds} rounds, {len(scrapes)} scrapes"
    return Section(
        "scraped",
        f"Telemetry at its worst: {prompts.name}, limit {limit:,} tokens, {counts}",
        ["", "ms", "p50", "p99"],
        rows,
        facts,
        [
            f"scraped every {SCRAPE_SECONDS:g} s by a thread of the client; nobody listens where it pushes to",
            f"a scrape took {milliseconds(took.p50)} ms (p50), {milliseconds(took.p99)} ms (p99)",
        ],
    )


def moved(ratio: float) -> str:
    """A ratio as a change."""
    return f"{ratio - 1:+.1%}"


LATE_TARGET: Final = 0.005
"""Seconds that the tick may be late at its 99th percentile."""
_SCRAPER: Final = """
import sys, time, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
end, number, size = time.monotonic() + float(sys.argv[2]), 0, 0
while time.monotonic() < end:
    size = len(opener.open(sys.argv[1], timeout=10).read())
    number += 1
print(number, size)
"""


def ticks(seconds: float) -> Section:
    """Tick for so long without scrapes, then for as long next to them."""
    metrics = f"127.0.0.1:{free_port()}"
    environment = {
        "PROMPT_SIDECAR_SERVER__LISTEN": f"127.0.0.1:{free_port()}",
        "PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN": metrics,
    }
    sidecar = start(load(environment))
    try:
        with ticking() as alone:
            threading.Event().wait(seconds)
        command = [sys.executable, "-c", _SCRAPER, f"http://{metrics}/metrics", str(seconds)]
        with ticking() as late:
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        sidecar.stop(0)
    scrapes, size = map(int, output.split())
    before, during = Spread.of(alone), Spread.of(late)
    rows = [
        ["nobody scrapes", *before.cells, ""],
        ["scrapes without a pause", *during.cells, f"{verdict(during.p99, LATE_TARGET)} 5 ms at p99"],
    ]
    facts = {"scrapes": scrapes, "bytes": size, "alone": before.facts(), "scraped": during.facts()}
    return Section(
        "ticks",
        f"How late a thread wakes up while /metrics is scraped: {scrapes:,} scrapes of {size:,} bytes",
        ["ms", "p50", "p99", ""],
        rows,
        facts,
        ["Prometheus scrapes every 15 seconds or so, and not without a pause: this is the worst of it."],
    )
