"""How the C library keeps memory that the process does not need now, where it is glibc.

Returning it to the system
--------------------------

A prompt of 10 MB is received, copied and freed; glibc keeps such blocks for the next one, and after a run of growing
prompts holds as much memory in unused blocks as the run itself takes (32 MB besides 32 MB, measured on a run of 10 MB).
A lower trim threshold in glibc would cost each call a page fault for each page. Called now and then, off the path of
calls, it costs a few milliseconds.

Arenas
------
glibc gives threads up to eight arenas a core, and what one thread frees stays with its arena. Few threads allocate at
once, as Python runs one at a time, so two arenas do: eight connections with four heavy calls each took 441 MB at most
instead of 519 (two cores, 24 threads), in the same time.

Large blocks
------------
glibc maps a large block by itself, so that it goes back to the system when it is freed. What counts as large grows with
the blocks that are freed, up to 32 MB: then a megabyte that is freed stays where a large prompt cannot use it. A prompt
of 35 MB, decoded in pieces, took 3.3 times its bytes at most, and takes 2.9 times where a megabyte always is large. The
page faults of a block of that size take a quarter of a millisecond; decoding it takes three.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

ARENAS: Final = 2
LARGE_BYTES: Final = 1_048_576
"""Blocks of so many bytes and more are mapped."""
KEPT_BYTES: Final = 67_108_864
"""Unused bytes at the end of an arena that glibc keeps: as many as it chooses itself after large blocks."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""glibc's numbers of these parameters."""


def _function(name: str) -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return found


_malloc_trim, _mallopt = _function("malloc_trim"), _function("mallopt")


def share_arenas() -> bool:
    """Have all threads that start from now on share a few arenas; return whether that was done.

    The environment decides where it sets the number itself.
    """
    return not _is_set("MALLOC_ARENA_MAX", "arena_max") and _set(_M_ARENA_MAX, ARENAS)


def map_large_blocks() -> bool:
    """Have each block of a megabyte or more go back to the system when it is freed; return whether that was done.

    The environment decides where it sets the number itself.
    """
    if _is_set("MALLOC_MMAP_THRESHOLD_", "mmap_threshold") or not _set(_M_MMAP_THRESHOLD, LARGE_BYTES):
        return False
    return _is_set("MALLOC_TRIM_THRESHOLD_", "trim_threshold") or _set(_M_TRIM_THRESHOLD, KEPT_BYTES)


def _is_set(variable: str, tunable: str) -> bool:
    """Whether the environment sets a parameter."""
    return variable in os.environ or f"glibc.malloc.{tunable}" in os.environ.get("GLIBC_TUNABLES", "")


def _set(parameter: int, value: int) -> bool:
    return _malloc_trim is not None and _mallopt is not None and bool(_mallopt(parameter, value))


def give_back() -> bool:
    """Return unused memory to the system; return whether the C library can."""
    if _malloc_trim is None:
        return False
    _malloc_trim(0)  # runs without the interpreter's lock
    return True
