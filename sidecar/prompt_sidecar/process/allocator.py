"""How glibc handles memory that the process does not need now.

Returning it to the system
--------------------------

A prompt of 10 MB is received, copied and freed; glibc keeps such blocks for the next one, and after a run of growing
prompts holds as much memory in unused blocks as the run itself takes (32 MB besides 32 MB, measured on a run of 10 MB).
A lower trim threshold in glibc would cost each call a page fault for each page. Called from time to time, outside
calls, `malloc_trim` costs a few milliseconds.

Arenas
------
glibc gives threads up to eight arenas a core, and memory freed by a thread stays in its arena. Few threads allocate at
once, as Python runs one at a time, so two arenas are enough: eight connections with four heavy calls each took 441 MB
at most instead of 519 (two cores, 24 threads), in the same time.

What it keeps
-------------
`mallinfo2`, of glibc 2.33 and later, says how much of that is free, in microseconds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""glibc's number of that parameter."""


def _function(name: str) -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return found


_malloc_trim, _mallopt = _function("malloc_trim"), _function("mallopt")


class _Blocks(ctypes.Structure):
    """glibc's struct mallinfo2 (malloc.h): bytes of blocks, as the allocator counts them."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


_mallinfo = _function("mallinfo2")
if _mallinfo is not None:
    _mallinfo.restype = _Blocks  # type: ignore[attr-defined]


def free_blocks() -> int:
    """Return the bytes of free blocks in the C library; 0 if it does not report them.

    It also counts blocks whose pages are returned, so it is an upper bound of their resident memory.
    """
    found: Any = _mallinfo() if _mallinfo is not None else None
    return int(found.fordblks) if found is not None else 0


def share_arenas() -> bool:
    """Make all threads started from now on share a few arenas; return whether that was done.

    If the environment sets the number, that is used.
    """
    if "MALLOC_ARENA_MAX" in os.environ or "glibc.malloc.arena_max" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    return _malloc_trim is not None and _mallopt is not None and bool(_mallopt(_M_ARENA_MAX, ARENAS))


def give_back() -> bool:
    """Return unused memory to the system; return whether the C library can."""
    if _malloc_trim is None:
        return False
    _malloc_trim(0)  # runs without the interpreter's lock
    return True
