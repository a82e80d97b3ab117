"""Threads beside what is measured: they work until the context ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

TICK_SECONDS: Final = 0.001


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have a thread work; the event that it is given is set when it should end."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=work.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def ticking() -> Iterator[list[float]]:
    """Wake up each millisecond; the list gains the seconds by which each time was late."""
    late: list[float] = []

    def tick(over: threading.Event) -> None:
        while True:
            began = perf_counter()
            if over.wait(TICK_SECONDS):
                return
            late.append(perf_counter() - began - TICK_SECONDS)

    with beside(tick):
        yield late
