"""A process whose first reads of the store are many at once: `python -m tests.store.first_reads URL RUNS`.

It asks for the figures of the runs `run-0` and on, each in a thread of its own, and prints how many were answered.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.engine.runs.making import LIMIT
from tests.promises.engine import CALLER, Engine
from tests.store.sharing import Stepped

SWITCH_SECONDS = 1e-6
"""As short as can be: threads take turns in the middle of everything."""


def main(url: str, runs: int) -> None:
    """Read them."""
    engine = Engine(limit=LIMIT, archive=Stepped(url))
    ready = threading.Barrier(runs)

    def read(run: int) -> int:
        ready.wait()
        return len(engine.runs.recalling.list_tasks(CALLER, f"run-{run}"))

    sys.setswitchinterval(SWITCH_SECONDS)
    with ThreadPoolExecutor(runs) as pool:
        print(sum(pool.map(read, range(runs))))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
