"""Log lines: one for each event, and never an exception's own text."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import logging
import os
import select
import threading
from collections.abc import Iterator

import pytest

from prompt_sidecar.process.logs import BOUND, WAITING_LINES, configure, frames, written_by_a_thread
from tests.waiting import PATIENCE

SECRET = "text of a prompt"


def _raise() -> None:
    try:
        os.environ[SECRET]
    except KeyError as error:
        raise ValueError(SECRET) from error


def test_frames_tell_types_and_places() -> None:
    """An exception is told as its type, its frames and its causes."""
    try:
        _raise()
    except ValueError as error:
        shown = frames(error)
    assert shown.startswith("ValueError at process/test_logs.py:")
    assert "_raise, caused by KeyError at" in shown
    assert SECRET not in shown


def test_a_recursion_is_cut() -> None:
    """A thousand frames become a dozen."""

    def deeper(depth: int) -> None:
        deeper(depth + 1)

    try:
        deeper(0)
    except RecursionError as error:
        shown = frames(error)
    assert 12 == shown.count("deeper")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An event with an exception and a line end is one line, without the exception's text."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure(form, "info")
        try:
            _raise()
        except ValueError:
            logging.getLogger("prompt_sidecar.test").exception("it\nfailed")
        logging.getLogger("prompt_sidecar.test").debug("not wanted")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    out = capsys.readouterr().err
    assert 1 == out.count("\n")
    assert SECRET not in out
    assert "ValueError at" in out
    if form == "json":
        event = json.loads(out)
        assert ("error", "prompt_sidecar.test", "it\nfailed") == (event["level"], event["logger"], event["message"])


@contextlib.contextmanager
def logging_to_a_pipe() -> Iterator[tuple[int, logging.Handler]]:
    """The end of a small pipe that is read, and the only handler, which logs to the other end."""
    root = logging.getLogger()
    before = root.handlers[:]
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4_096)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    handler = logging.StreamHandler(stream)
    root.handlers[:] = [handler]
    try:
        yield reading, handler
    finally:
        root.handlers[:] = before
        os.close(reading)  # whoever waits to write goes on
        with contextlib.suppress(OSError):
            stream.close()


def test_lines_are_written_by_a_thread() -> None:
    """All of them, in their order, before the context ends; after it they are written as before."""
    log = logging.getLogger("prompt_sidecar.test")
    with logging_to_a_pipe() as (reading, handler):
        with written_by_a_thread():
            for at in range(100):
                log.warning("line %d", at)
        assert [handler] == logging.getLogger().handlers
        assert [f"line {at}" for at in range(100)] == os.read(reading, 65_536).decode().splitlines()


def test_lines_that_nobody_reads_hold_nobody_up() -> None:
    """They are counted, and one line says how many when somebody reads again."""
    log, reached = logging.getLogger("prompt_sidecar.test"), list[str]()
    with logging_to_a_pipe() as (reading, _), written_by_a_thread() as writers:
        writers[0].reached = reached.append
        for _ in range(2 * WAITING_LINES):
            log.warning("x" * 100)
        lines = lines_until_reported(reading)
    assert {"x" * 100} == set(lines[:-1])
    assert WAITING_LINES < len(lines) <= 2 * WAITING_LINES
    assert f"{len(reached):,} lines were not logged, as nobody read those before them" == lines[-1]
    assert [BOUND] * (2 * WAITING_LINES - len(lines) + 1) == reached


def lines_until_reported(reading: int) -> list[str]:
    """The lines of a pipe up to the one which says how many are not there."""
    read = b""
    while b"not logged" not in read or not read.endswith(b"\n"):
        assert select.select([reading], [], [], PATIENCE)[0], "it was not told"
        read += os.read(reading, 65_536)
    return read.decode().splitlines()


def test_an_end_does_not_wait_for_a_reader() -> None:
    """Nor does anybody who logs after it; who reads later finds what waited, and how much more there was."""
    log = logging.getLogger("prompt_sidecar.test")
    with logging_to_a_pipe() as (reading, handler):
        with written_by_a_thread():
            for _ in range(2 * WAITING_LINES):
                log.warning("x" * 100)
        log.warning("x" * 100)
        assert handler not in logging.getLogger().handlers
        with logging_to_a_pipe() as (other, _):
            assert {"x" * 100} == set(lines_until_reported(reading)[:-1])
            assert not select.select([other], [], [], 0)[0]


def test_a_line_that_is_counted_holds_up_no_other() -> None:
    """A finalizer may log in a thread that holds the lock of the counters, while another waits for it to count."""
    log, counters, waits = logging.getLogger("prompt_sidecar.test"), threading.RLock(), threading.Event()

    def count(_: str) -> None:
        waits.set()
        with counters:
            pass

    def log_until_counted() -> None:
        while not waits.is_set():  # the writer may have taken a line meanwhile, so that there is room for another
            log.warning("x")

    def log_as_a_finalizer() -> None:
        with counters:
            threading.Thread(target=log_until_counted, daemon=True).start()
            assert waits.wait(PATIENCE)
            log.warning("x")

    with logging_to_a_pipe(), written_by_a_thread() as writers:
        for _ in range(2 * WAITING_LINES):
            log.warning("x" * 100)
        writers[0].reached = count
        finalizing = threading.Thread(target=log_as_a_finalizer, daemon=True)
        finalizing.start()
        finalizing.join(PATIENCE)
        assert not finalizing.is_alive()


def test_a_finalizer_may_log_while_a_line_is_logged() -> None:
    """The collector runs it in whichever thread allocates, at any place: a lock that is held there is taken twice."""

    class Finalized:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            log.warning("finalized")

    def lines() -> None:
        for at in range(2_000):
            Finalized()
            for _ in range(at % 40):  # moves where the collector will run
                list[object]().append([])
            log.warning("line")

    log = logging.getLogger("prompt_sidecar.test")
    before = gc.get_threshold()
    with logging_to_a_pipe(), written_by_a_thread():
        logging_thread = threading.Thread(target=lines, daemon=True)
        gc.set_threshold(7)
        try:
            logging_thread.start()
            logging_thread.join(PATIENCE)
        finally:
            gc.set_threshold(*before)
        assert not logging_thread.is_alive()
