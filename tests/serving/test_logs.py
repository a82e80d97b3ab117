"""Log lines: one for each event, and never an exception's own text."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator

import pytest

from prompt_sidecar.serving.logs import WAITING_LINES, configure, frames, written_by_a_thread

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
        told = frames(error)
    assert told.startswith("ValueError at serving/test_logs.py:")
    assert "_raise, caused by KeyError at" in told
    assert SECRET not in told


def test_a_recursion_is_cut() -> None:
    """A thousand frames become a dozen."""

    def deeper(depth: int) -> None:
        deeper(depth + 1)

    try:
        deeper(0)
    except RecursionError as error:
        told = frames(error)
    assert 12 == told.count("deeper")


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
    log = logging.getLogger("prompt_sidecar.test")
    with logging_to_a_pipe() as (reading, _), written_by_a_thread():
        for _ in range(2 * WAITING_LINES):
            log.warning("x" * 100)
        read = []
        with os.fdopen(os.dup(reading), encoding="utf-8") as lines:
            while "not logged" not in (line := lines.readline()):
                read.append(line)
    assert {"x" * 100 + "\n"} == set(read)
    assert WAITING_LINES <= len(read) < 2 * WAITING_LINES
    assert f"{2 * WAITING_LINES - len(read):,} lines were not logged, as nobody read those before them\n" == line


def test_an_end_does_not_wait_for_a_reader() -> None:
    """Nor does anybody who logs after it."""
    log = logging.getLogger("prompt_sidecar.test")
    with logging_to_a_pipe() as (_, handler):
        with written_by_a_thread():
            for _ in range(2 * WAITING_LINES):
                log.warning("x" * 100)
        log.warning("x" * 100)
        assert handler not in logging.getLogger().handlers
