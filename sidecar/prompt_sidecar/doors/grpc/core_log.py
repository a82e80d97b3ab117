"""Logs what gRPC's C core writes to stderr, in the configured format and with a limited rate.

The core cannot use our loggers: it writes lines to file descriptor 2, at its default verbosity one for each TLS
handshake that fails, so anyone who connects can fill a disk. While a server runs, descriptor 2 is therefore a pipe. A
thread reads it and logs each line, at most as many a minute as the budget allows, and counts the others. Output of
Python, and of `faulthandler` after a crash, goes where stderr went before.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator

from prompt_sidecar.calls.refusals import LineBudget

_CORE = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ ([\w./-]+:\d+)\] ?(.*)")
"""A line of the core: severity, date, time, thread, place, text, in Absl's format."""
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_MOST_CHARACTERS = 500
_STDERR = 2
_END_SECONDS = 1.0

_log = logging.getLogger("grpc.core")


@contextlib.contextmanager
def core_lines_logged(a_minute: int) -> Iterator[None]:
    """Log what is written to descriptor 2, at most `a_minute` lines a minute, until the context ends."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # the descriptor is closed: no line can be read
        yield
        return
    ours = io.TextIOWrapper(os.fdopen(os.dup(kept), "wb", 0), "utf-8", "backslashreplace", write_through=True)
    before = sys.stderr
    reading, writing = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    sys.stderr = ours
    _move_handlers(before, ours)
    faulthandler.enable(ours)
    reader = threading.Thread(target=_read, args=(reading, LineBudget(a_minute)), name="core-log", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)  # closes the pipe's last write end, so that the reader ends
        reader.join(_END_SECONDS)
        faulthandler.disable()
        sys.stderr = before
        _move_handlers(ours, before)
        ours.close()
        os.close(kept)


def _move_handlers(old: object, new: object) -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)


def _read(reading: int, budget: LineBudget) -> None:
    with open(reading, encoding="utf-8", errors="backslashreplace") as lines:
        while line := lines.readline(_MOST_CHARACTERS):
            if over := budget.taken_over():
                _log.warning("%s more lines of gRPC's were not logged: log.refusals was reached", f"{over:,}")
            if line.strip() and budget.take():
                _log_line(line.rstrip())


def _log_line(line: str) -> None:
    found = _CORE.fullmatch(line)
    if found is None:
        _log.warning("%s", line)
    else:
        _log.log(_LEVELS[found[1]], "%s %s", found[2].rpartition("/")[2], found[3])
