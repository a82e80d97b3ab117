"""`/metrics` under scrapers that open connections and say nothing, or say it slowly."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.scrapes import Exposition
from tests.waiting import until

PATIENCE = 20.0
SCRAPES = 4
SILENT = 300
"""Half-open scrapers; each once held a thread for ever."""


class Exposing(ExposedMetrics):
    """Exposes what a test has."""

    def __init__(self, has: CollectorRegistry) -> None:
        super().__init__()
        self._has = has

    def registry(self) -> CollectorRegistry:
        """All of it."""
        return self._has


class Served:
    """An exposition, and the bounds that it reached."""

    def __init__(self, host: str = "127.0.0.1", **options: object) -> None:
        exposed = CollectorRegistry()
        Counter("asked", "Something to scrape.", registry=exposed)
        self.reached: list[str] = []
        self.reported = threading.Event()
        made = TelemetryOptions(**{"scrapes": SCRAPES, **options})  # type: ignore[arg-type]
        self.exposition = Exposition((host, 0), Exposing(exposed), made)
        self.strangers: list[tuple[str, str]] = []
        self.exposition.report_to(self._report, lambda listener, header: self.strangers.append((listener, header)))

    def _report(self, bound: str) -> None:
        self.reached.append(bound)
        self.reported.set()

    def connect(self) -> socket.socket:
        """A connection that says nothing yet."""
        return socket.create_connection(("127.0.0.1", self.exposition.port), PATIENCE)

    def asked(self, **headers: str) -> int:
        """The status that a request with these headers gets; their names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.exposition.port}/metrics", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def scrape(self) -> bytes:
        """What a scraper gets."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.exposition.port}/metrics", timeout=PATIENCE) as answer:
            found: bytes = answer.read()
        return found


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """Connections to close at the end."""
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


def test_silent_scrapers_hold_neither_threads_nor_others(opened: list[socket.socket]) -> None:
    """Three hundred that say nothing: a scraper gets its answer, and there are no more threads than scrapes."""
    before = threading.active_count()
    served = Served(scrape_timeout=3_600)
    opened.extend(served.connect() for _ in range(SILENT))
    assert b"asked_total 0.0" in served.scrape()
    for each in opened[: SILENT - SCRAPES]:
        assert b"" == each.recv(1)  # waits until it is closed
    until(lambda: threading.active_count() <= before + 1 + SCRAPES)  # the server's own; others are about to end
    assert {"telemetry.scrapes"} == set(served.reached)
    served.exposition.close()


def test_a_scraper_has_so_long_in_all(opened: list[socket.socket]) -> None:
    """A request that comes a byte at a time is cut off when its time is over, however often it sends one."""
    served = Served(scrape_timeout=0.3)
    slow = served.connect()
    opened.append(slow)
    slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    dripping = threading.Event()

    def drip() -> None:
        try:
            while not dripping.wait(0.02):
                slow.sendall(b"x")
        except OSError:
            pass

    thread = threading.Thread(target=drip)
    thread.start()
    assert served.reported.wait(PATIENCE)
    assert "telemetry.scrape_timeout" == served.reached[0]
    dripping.set()
    thread.join(PATIENCE)
    assert b"asked_total" in served.scrape()
    served.exposition.close()


def test_a_scrape_that_is_answered_is_not_cut_off_for_a_new_one(opened: list[socket.socket]) -> None:
    """Who has sent a request keeps its place; who has not gives way."""
    entered, go = threading.Event(), threading.Event()

    class Held:
        def collect(self) -> Iterator[object]:
            entered.set()
            assert go.wait(PATIENCE)
            yield from ()

    served = Served(scrape_timeout=3_600)
    exposed = CollectorRegistry()
    exposed.register(Held())  # type: ignore[arg-type]
    held = Exposition(("127.0.0.1", 0), Exposing(exposed), TelemetryOptions(scrapes=2, scrape_timeout=3_600))
    asking = socket.create_connection(("127.0.0.1", held.port), PATIENCE)
    opened.append(asking)
    asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert entered.wait(PATIENCE)
    opened.extend(socket.create_connection(("127.0.0.1", held.port), PATIENCE) for _ in range(10))
    for each in opened[1:-1]:
        assert b"" == each.recv(1)
    go.set()
    assert asking.recv(15).startswith(b"HTTP/1.0 200")
    held.close()
    served.exposition.close()


def test_other_paths_are_not_found() -> None:
    """A probe of another path on the metrics port must not look like a healthy service."""
    served = Served()
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{served.exposition.port}/healthz", timeout=PATIENCE)
        assert b"asked" in served.scrape()
    finally:
        served.exposition.close()

    assert 404 == refused.value.code


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (421, {"Host": "evil.example:9464"}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}),
        (200, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}),
        (200, {"Host": "localhost:9464"}),
        (200, {"Host": "Figures.example"}),
        (200, {"Host": "10.244.0.17:9464"}),
    ],
)
def test_pages_of_other_sites_read_no_figures(status: int, headers: dict[str, str]) -> None:
    """On loopback only its own names are answered, and those of the settings; each refusal is counted."""
    served = Served(hosts=("figures.example",))
    assert status == served.asked(**headers)
    assert [("metrics", "host" if status == 421 else "origin")] * (status != 200) == served.strangers
    served.exposition.close()


@pytest.mark.parametrize("host", ["10.244.0.17:9464", "sidecar:9464", "node-1.corp.example:9464", "[fd00::7]:9464"])
def test_beyond_loopback_any_name_is_scraped(host: str) -> None:
    """By a pod's address, a service's name, a machine's; but not by a page that says that it is another site's."""
    served = Served("0.0.0.0")
    assert 200 == served.asked(Host=host)
    assert 403 == served.asked(Host=host, Origin="https://evil.example")
    served.exposition.close()


def test_a_scrape_without_a_host() -> None:
    """HTTP/1.0 has none, and no browser leaves it out."""
    served = Served()
    with served.connect() as asking:
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert asking.recv(15).startswith(b"HTTP/1.0 200")
    served.exposition.close()
