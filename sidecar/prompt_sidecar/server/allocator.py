"""Memory that prompts needed for a moment is given back to the system, where the C library can be asked to.

A prompt of 10 MB is received, copied and let go; glibc keeps such blocks for the next one, and after a run of growing
prompts holds as much in unused ones as the run takes itself (32 MB beside 32 MB, measured on a run of 10 MB). A smaller
threshold for its own giving back would cost each call a fault for each page; asked now and then, it costs a few
milliseconds off every path.
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
    """Give unused memory back; whether the C library can."""
    if _malloc_trim is None:
        return False
    _malloc_trim(0)  # runs without the interpreter's lock
    return True
