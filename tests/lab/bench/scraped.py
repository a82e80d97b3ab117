"""What telemetry costs a caller at its worst: `/metrics` is scraped all the time, and the collector is not there.

Two processes of the real program take turns on the same run: one without telemetry, one that is scraped every
second, fifteen times as often as is usual, and exports to a port on which nobody listens.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from time import perf_counter

import grpc

from tests.lab.bench.processes import REAL, serving
from tests.lab.bench.wire import TRIM, Send
from tests.lab.harness.figures import Section, Spread, best_of, milliseconds
from tests.lab.harness.processes import free_port
from tests.lab.harness.prompts import Prompts, request

TARGET = 0.05
"""By how much the 99th percentile may move."""
SCRAPE_SECONDS = 1.0
_WIDE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def scraped(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times to both, after one round that warms up."""
    plain: list[list[float]] = []
    watched: list[list[float]] = []
    metrics = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        off = stack.enter_context(serving(REAL, OTEL_SDK_DISABLED="true"))
        pushing = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
        on = stack.enter_context(serving(REAL, PROMPT_SIDECAR_TELEMETRY__METRICS_LISTEN=metrics, **pushing))
        without: Send = stack.enter_context(grpc.insecure_channel(off, options=_WIDE)).unary_unary(TRIM)
        with_all: Send = stack.enter_context(grpc.insecure_channel(on, options=_WIDE)).unary_unary(TRIM)
        scrapes = stack.enter_context(scraping(metrics))
        for number in range(rounds + 1):
            salted = prompts.salted(number)
            times: tuple[list[float], list[float]] = ([], [])
            for index, body in enumerate(salted.bodies()):
                raw = request(f"scraped-{number:04}", salted.format, body, limit)
                both = list(zip((without, with_all), times, strict=True))
                for send, into in both if (index + number) % 2 else both[::-1]:
                    began = perf_counter()
                    send(raw)
                    into.append(perf_counter() - began)
            if number:
                plain.append(times[0])
                watched.append(times[1])
    return _section(prompts, limit, (plain, watched), scrapes)


@contextmanager
def scraping(address: str) -> Iterator[list[float]]:
    """Scrape all the time; the list gains the seconds that each scrape took."""
    over = threading.Event()
    scrapes: list[float] = []
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def scrape() -> None:
        while not over.wait(SCRAPE_SECONDS):
            began = perf_counter()
            with suppress(OSError), opener.open(f"http://{address}/metrics", timeout=10) as answer:
                answer.read()
                scrapes.append(perf_counter() - began)

    scraper = threading.Thread(target=scrape, name="scraper", daemon=True)
    scraper.start()
    try:
        yield scrapes
    finally:
        over.set()
        scraper.join()


def _section(
    prompts: Prompts, limit: int, rounds: tuple[list[list[float]], list[list[float]]], scrapes: list[float]
) -> Section:
    rows: list[list[str]] = []
    facts: dict[str, object] = {"limit": limit, "rounds": len(rounds[0]), "scrapes": len(scrapes)}
    pooled = [Spread.of(chain(*times)) for times in rounds]
    best = [Spread.of(best_of(times)) for times in rounds]
    for name, (plain, watched) in (("all calls", pooled), ("best of each call's rounds", best)):
        over = watched.over(plain)
        rows += [
            [name, "no telemetry", milliseconds(plain.p50), milliseconds(plain.p99)],
            ["", "scraped, collector down", milliseconds(watched.p50), milliseconds(watched.p99)],
            ["", "moved by", moved(over.p50), f"{moved(over.p99)} (target {TARGET:.0%})"],
        ]
        facts[name] = {
            "plain": plain.facts(),
            "watched": watched.facts(),
            "ratio_p50": round(over.p50, 3),
            "ratio_p99": round(over.p99, 3),
        }
    took = Spread.of(scrapes) if scrapes else Spread(0, 0)
    facts["scrape"] = took.facts()
    counts = f"{len(rounds[0])} rounds, {len(scrapes)} scrapes"
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
