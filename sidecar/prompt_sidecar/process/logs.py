"""Logging: one line for each event, as text or JSON, never with text of a prompt.

An exception's message may quote the text that caused it, so no formatter here writes messages: an exception is logged
as its type and the frames of its traceback.

While a server runs, a separate thread writes the lines. If stderr is not read, as when an agent starts the sidecar with
a pipe that it never reads, the pipe is full after 64 KiB, and any thread that writes to it waits for ever.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import queue
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from logging.handlers import QueueHandler
from typing import Any, Final, TextIO

from prompt_sidecar.facts.log_lines import SHOWN

_log = logging.getLogger(__name__)

REFUSED: Final = "prompt_sidecar.refused"
"""The logger of refused calls, whose lines are limited by the setting `log.refusals`."""
REPEAT_SECONDS: Final = 60.0
"""Time between two warnings with the same words."""
MOST_LINES: Final = 256
"""Different warnings that are remembered for that; beyond, the oldest is forgotten and may be written again."""
_FRAMES = 12
"""Frames of a traceback that are logged, the innermost: a recursion's thousand frames would not help."""

_CAUSES = 4
"""Exceptions of one chain that are logged."""

BOUND: Final = "log.waiting_lines"
WAITING_LINES = 1_000
"""Lines that may wait to be written, of some 200 bytes: more than a start, a stop and several minutes of refusals."""

_END_SECONDS = 2.0
"""How long the end waits until the lines are written."""


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


_about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)


def begin_about(door: str) -> None:
    """Begin a request or a call: later lines of this context have its door, and the members set by `about`."""
    _about.set({"door": door})


@contextlib.contextmanager
def call_through(door: str) -> Iterator[None]:
    """Assign lines within this context to one call of this door, on a thread that runs many calls one after another."""
    token = _about.set({"door": door})
    try:
        yield
    finally:
        _about.reset(token)


def about(**known: str) -> None:
    """Add members to later lines of the current request or call, also in its other threads."""
    if (current := _about.get()) is not None:
        current.update({name: value for name, value in known.items() if value})


@contextlib.contextmanager
def within(**known: str) -> Iterator[None]:
    """Add members to lines within this context: to those of the current request or call, or of this context alone."""
    if _about.get() is not None:
        about(**known)
        yield
        return
    token = _about.set({name: value for name, value in known.items() if value})
    try:
        yield
    finally:
        _about.reset(token)


class Repeats(logging.Filter):
    """Passes the same warning or error once a minute; the next line passed has the number of those omitted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.RLock()  # a finalizer may log
        self._logged_at: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno < logging.WARNING or record.name == REFUSED:
            return True
        key = record.name, record.getMessage()
        with self._lock:
            now = self._clock()
            at, more = self._logged_at.pop(key, (-math.inf, 0))
            if now - at < REPEAT_SECONDS:
                self._logged_at[key] = at, more + 1
                return False
            self._logged_at[key] = now, 0
            if len(self._logged_at) > MOST_LINES:
                self._logged_at.popitem(last=False)
        if more:
            record.msg, record.args = f"{key[1]} ({more:,} more since the last such line)", ()
        return True


class Once:
    """Logs each warning only the first time, for events that may occur at each request and are counted by metrics."""

    def __init__(self) -> None:
        self._logged: set[tuple[object, ...]] = set()

    def warning(self, log: logging.Logger, message: str, *values: object) -> None:
        """Log a warning, unless the same was logged with the same values."""
        if (message, *values) not in self._logged:
            self._logged.add((message, *values))
            log.warning(message, *values)


Ids = Callable[[], tuple[str, str] | None]
"""Returns the hexadecimal ids of the current thread's trace and span, or None."""


def no_ids() -> None:
    """Return None: there are no traces."""


def configure(form: str, level: str, ids: Ids = no_ids, stream: TextIO | None = None) -> None:
    """Configure the log: `form` is `text` or `json`.

    Args:
        form: `text` or `json`.
        level: the lowest level that is logged.
        ids: returns the ids of trace and span.
        stream: the output; None for stderr.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(Repeats())
    handler.setFormatter(_Lines(ids, as_json=form == "json"))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


@contextlib.contextmanager
def written_by_a_thread() -> Iterator[Sequence[Writer]]:
    """Write the lines in a separate thread until the context ends, so that no other thread waits for their reader."""
    root = logging.getLogger()
    before = [handler for handler in root.handlers if isinstance(handler, logging.StreamHandler)]
    writers = [Writer(handler) for handler in before]
    _replace(before, writers)
    try:
        yield writers
    finally:
        for writer, handler in zip(writers, before, strict=True):
            if writer.end():
                _replace([writer], [handler])  # otherwise it stays: a thread that wrote a line now would wait for ever


def _replace(old: Iterable[logging.Handler], new: Iterable[logging.Handler]) -> None:
    root = logging.getLogger()
    for handler in old:
        root.removeHandler(handler)
    for handler in new:
        root.addHandler(handler)


def _uncounted(_: str) -> None: ...


class Writer(QueueHandler):
    """Passes lines to the thread that writes them; counts lines beyond the limit, and logs their number in one line.

    The library's QueueListener would wait at the end until its output is read. The queue is a SimpleQueue, as
    finalizers log too, and may run within `put`: the lock of a queue with a limit cannot be taken twice by one thread.
    """

    queue: queue.SimpleQueue[logging.LogRecord | None]

    def __init__(self, handler: logging.StreamHandler[Any]) -> None:
        super().__init__(queue.SimpleQueue())
        self.setFormatter(handler.formatter)
        for each in handler.filters:
            self.addFilter(each)
        self.reached: Callable[[str], None] = _uncounted
        self._stream = handler.stream
        self._omitted = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Queue a record without the handler's lock, as a thread that logs may hold the counters' lock."""
        if not self.filter(record):
            return False
        self.emit(record)
        return True

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record whose message is already its formatted line."""
        if self.queue.qsize() < WAITING_LINES:
            self.queue.put(record)
            return
        self.acquire()
        self._omitted += 1
        self.release()
        self.reached(BOUND)

    def end(self) -> bool:
        """Wait until all lines are written, at most two seconds; return whether they are."""
        self.queue.put(None)
        self._thread.join(_END_SECONDS)
        return not self._thread.is_alive()

    def _write(self) -> None:
        while (record := self.queue.get()) is not None:
            self._write_line(record.getMessage())
            if self.queue.empty():
                self._tell_omitted()
        self._tell_omitted()

    def _tell_omitted(self) -> None:
        self.acquire()
        omitted, self._omitted = self._omitted, 0
        self.release()
        if omitted and _log.isEnabledFor(logging.WARNING):
            message = f"{omitted:,} lines were not logged, as nobody read those before them"
            self._write_line(self.format(_log.makeRecord(_log.name, logging.WARNING, __file__, 0, message, (), None)))

    def _write_line(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the stream is closed
            self._stream.write(line + "\n")
            self._stream.flush()


class _Lines(logging.Formatter):
    """Formats lines for people or, as JSON, for machines; `ids` returns the ids of trace and span."""

    def __init__(self, ids: Ids, *, as_json: bool) -> None:
        super().__init__()
        self._ids = ids
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        error = frames(record.exc_info[1]) if record.exc_info and record.exc_info[1] is not None else ""
        ids = self._ids()
        message = record.getMessage()
        if self._as_json:
            event = {
                "time": _time(record),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message,
            }
            event |= {"error": error} if error else {}
            shown = {**(_about.get() or {}), **getattr(record, SHOWN, {})}
            event |= {name: value for name, value in shown.items() if name not in event}
            return json.dumps(event | (dict(zip(("trace_id", "span_id"), ids, strict=True)) if ids is not None else {}))
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}"
        line += f" | {error}" if error else ""
        line += f" | trace_id={ids[0]} span_id={ids[1]}" if ids is not None else ""
        return line.replace("\n", " | ")


def _time(record: logging.LogRecord) -> str:
    """Return the time by RFC 3339, in UTC, with milliseconds."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _short(path: str) -> str:
    """Return the last two parts of a path: enough to find the file, without information about the machine."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])
