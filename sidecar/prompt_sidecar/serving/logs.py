"""Logging: one line for each event, as text or JSON, never with text of a prompt.

An exception's message may quote the text that caused it, so no formatter here writes one: an exception is shown as its
type and the frames of its traceback.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable

_FRAMES = 12
"""Most frames of a traceback that are shown, the innermost: a recursion's thousand frames would not help."""

_CAUSES = 4
"""Exceptions of one chain that are shown."""


def frames(error: BaseException) -> str:
    """Return an exception's type and frames on one line, with those of its causes; never its message."""
    shown: list[str] = []
    current: BaseException | None = error
    while current is not None and len(shown) < _CAUSES:
        summary = traceback.extract_tb(current.__traceback__)[-_FRAMES:]
        places = " > ".join(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in summary)
        shown.append(f"{type(current).__name__} at {places or 'an unknown place'}")
        current = current.__cause__
    return ", caused by ".join(shown)


Ids = Callable[[], tuple[str, str] | None]
"""Returns the ids of the current thread's trace and span, in hex; None: there is none."""


def no_ids() -> None:
    """Return None: there are no traces."""


def configure(form: str, level: str, ids: Ids = no_ids) -> None:
    """Log to stderr in `form`, `text` or `json`, from `level` on; `ids` returns the ids of trace and span."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(ids) if form == "json" else _Text(ids))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


class _WithIds(logging.Formatter):
    def __init__(self, ids: Ids) -> None:
        super().__init__()
        self._ids = ids


class _Text(_WithIds):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            line += " | " + frames(record.exc_info[1])
        if (ids := self._ids()) is not None:
            line += f" | trace_id={ids[0]} span_id={ids[1]}"
        return line.replace("\n", " | ")


class _Json(_WithIds):
    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            event["error"] = frames(record.exc_info[1])
        if (ids := self._ids()) is not None:
            event["trace_id"], event["span_id"] = ids
        return json.dumps(event)


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, in UTC, to the millisecond."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _short(path: str) -> str:
    """Return the last two parts of a path: enough to find the file, and nothing about the machine."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])
