"""The clock that times to live are counted by.

Wall clocks are set: by NTP, by an operator, by a virtual machine that wakes up. A step of two hours forward would
expire every original at once, and after a step back they would be kept for as long again. So the core gets a clock
that nobody can set. `time.monotonic` is one, but on Linux it stands still while the machine sleeps, and an hour to live
must not become a night: CLOCK_BOOTTIME goes on. Elsewhere (macOS) monotonic is the best there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _steady() -> Callable[[], float]:
    try:
        _boot_time()
    except (AttributeError, OSError):  # not Linux, or a kernel or sandbox without it
        return time.monotonic
    return _boot_time


steady = _steady()
"""Seconds since some moment before the process began; they never step, and go on while the machine sleeps."""
