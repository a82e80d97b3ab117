"""The clock that measures times to live.

Wall clocks are adjusted: by NTP, by an operator, by a virtual machine that resumes. A step of two hours forward would
expire every original at once, and after a step back they would be kept for as long again. So the core gets a clock that
cannot be adjusted. `time.monotonic` is one, but on Linux it stops while the machine sleeps, which would extend a time
to live of an hour to a night: CLOCK_BOOTTIME continues. Elsewhere (macOS) monotonic is the best available.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _steady() -> Callable[[], float]:
    try:
        _boot_time()
    except (AttributeError, OSError):  # not Linux, or a kernel or sandbox without this clock
        return time.monotonic
    return _boot_time


steady = _steady()
"""Seconds since some moment before the process started; they never step, and continue while the machine sleeps."""
