"""Which run a call belongs to, whatever the agent's own function does."""

from __future__ import annotations

from typing import Any

import pytest

from prompt_sidecar.integrations import in_run
from prompt_sidecar.integrations.naming import chosen


class Odd:
    """What cannot even be looked at."""

    def __bool__(self) -> bool:
        raise ValueError("secret")

    def __str__(self) -> str:
        raise ValueError("secret")


@pytest.mark.parametrize("odd", [7, b"run", "half \ud83d", ["run"], Odd(), {"a": 1}])
def test_what_is_no_text_names_no_run(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The agent goes on, and is told why, without what it was."""
    assert chosen(lambda _: odd, None) == ""
    assert 1 == len(caplog.records)
    assert "secret" not in caplog.text
    assert "half" not in caplog.text


def test_a_function_that_fails_names_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """As one that returns None; only the kind of its error is told."""

    def fails(_: Any) -> str:
        raise LookupError("secret")

    assert "" == chosen(fails, None)
    assert "LookupError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("run", ["run", lambda given: given, "x" * 100_000])
def test_a_text_names_it(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Of any length, as the sidecar says what it takes; the run around a call goes before it."""
    expected = run("given") if callable(run) else run
    assert expected == chosen(run, "given")
    assert "" == chosen(lambda _: None, "given")
    with in_run("around"):
        assert "around" == chosen(run, "given")
    assert [] == caplog.records
