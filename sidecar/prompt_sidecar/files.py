"""Reads the files that settings name, completely, but with limits on size and time.

A path may lead to a pipe whose writer writes nothing, to an endless device, or by mistake to gigabytes of other data. A
start that waits for these gives no reason, and a reload blocks the thread that would stop the process. Pipes with a
writer are read, such as those of the shell's `<(...)`.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from time import monotonic
from typing import Final

MOST_BYTES: Final = 16_777_216
"""Largest file, in bytes: thousands of callers' tables, or a hundred thousand tokens."""
PIPE_SECONDS: Final = 5.0
"""Seconds in which a pipe's writer must have written everything: it was started before us, and has little to write."""
_PIECE: Final = 1_048_576


def read_file(path: str, *, pipes: bool = True, seconds: float = PIPE_SECONDS) -> bytes:
    """Return a file's content.

    Args:
        path: of the file.
        pipes: whether it may be a pipe or a terminal, which can be read only once.
        seconds: time in which anything but a regular file must end.

    Raises:
        OSError: the file cannot be read; `strerror` says why.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        waits = not stat.S_ISREG(mode)
        if waits and not pipes:
            raise OSError(errno.EINVAL, "it is not a regular file")
        return _read(opened, seconds if waits else None)
    finally:
        os.close(opened)


def _read(opened: int, seconds: float | None) -> bytes:
    """Read to the end, within `seconds`; None for no limit."""
    parts, size = list[bytes](), 0
    end = None if seconds is None else monotonic() + seconds
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    while True:
        if end is not None and not poll.poll(max(0.0, end - monotonic()) * 1_000):
            raise OSError(errno.ETIMEDOUT, f"it is not a regular file, and did not end within {seconds:g} s")
        part = os.read(opened, _PIECE)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES:,} bytes")
