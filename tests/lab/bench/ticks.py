"""How long a scrape keeps other threads of the sidecar from running: a thread that wakes up each millisecond.

The real program's telemetry is started in this process, as nobody outside sees its threads. Another process scrapes it
without a pause, while a thread here notes how late it wakes up: next to scrapes, and before them.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from prompt_sidecar.app import start
from prompt_sidecar.config.settings import load
from tests.lab.harness.figures import Section, Spread, milliseconds
from tests.lab.harness.processes import free_port

TARGET: Final = 0.005
"""Seconds that the tick may be late at its 99th percentile."""
TICK_SECONDS: Final = 0.001
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
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        sidecar.stop(0)
    scrapes, size = map(int, told.split())
    before, during = Spread.of(alone), Spread.of(late)
    verdict = "within" if during.p99 < TARGET else "MISSES"
    rows = [
        ["nobody scrapes", milliseconds(before.p50), milliseconds(before.p99), ""],
        ["scrapes without a pause", milliseconds(during.p50), milliseconds(during.p99), f"{verdict} 5 ms at p99"],
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


@contextmanager
def ticking() -> Iterator[list[float]]:
    """Wake up each millisecond; the list gains the seconds by which each time was late."""
    late: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while True:
            began = perf_counter()
            if over.wait(TICK_SECONDS):
                return
            late.append(perf_counter() - began - TICK_SECONDS)

    thread = threading.Thread(target=tick, name="tick", daemon=True)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()
