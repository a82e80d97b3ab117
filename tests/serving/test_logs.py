"""Log lines: one for each event, and never an exception's own text."""

from __future__ import annotations

import json
import logging
import os

import pytest

from prompt_sidecar.serving.logs import configure, frames

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
