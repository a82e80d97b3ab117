"""Returns memory that prompts needed for a moment to the system, where the C library offers a function for it.

A prompt of 10 MB is received, copied and freed; glibc keeps such blocks for the next one, and after a run of growing
prompts holds as much memory in unused blocks as the run itself takes (32 MB besides 32 MB, measured on a run of 10 MB).
A lower trim threshold in glibc would cost each call a page fault for each page. Called now and then, off the path of
calls, it costs a few milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _trimmer() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return found


_malloc_trim = _trimmer()


def give_back() -> bool:
    """Return unused memory to the system; return whether the C library can."""
    if _malloc_trim is None:
        return False
    _malloc_trim(0)  # runs without the interpreter's lock
    return True
