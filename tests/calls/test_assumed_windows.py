"""The line on a unknown window: once for each model, and without its name."""

from __future__ import annotations

import logging
from hashlib import sha256

import pytest

from prompt_sidecar.calls.assumed_windows import DIGITS, MOST_NAMES, AssumedWindows
from prompt_sidecar.v1 import trim_pb2
from tests.doors.grpc.serving import PATIENCE, request, serving

SECRET = "a model that a customer has named"


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "prompt_sidecar.window"]


def _sent(model: str, **fields: int) -> trim_pb2.TrimPromptRequest:
    sent = request(run_id=f"run of {model}")
    sent.model = model
    for name, value in fields.items():
        setattr(sent, name, value)
    return sent


def test_each_unknown_model_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """However many prompts there are; none for a known model, nor where the window is named."""
    with serving() as served, caplog.at_level(logging.WARNING):
        for _ in range(3):
            for sent in (_sent(SECRET), _sent(""), _sent("gpt-4o"), _sent("another", context_window=9_000)):
                answer = served.stub.TrimPrompt(sent, timeout=PATIENCE)
                assert (sent.model in (SECRET, "")) == answer.tokens.window_assumed
    named, unnamed = _lines(caplog)
    assert f"SHA-256 {sha256(SECRET.encode()).hexdigest()[:DIGITS]}…" in named
    assert "a model that is not named" in unnamed
    assert all("limits.default_window" in line and "128,000 tokens" in line for line in (named, unnamed))
    assert SECRET not in caplog.text


def test_made_up_names_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Callers choose the names, so only so many are logged."""
    windows = AssumedWindows()
    with caplog.at_level(logging.WARNING):
        for number in range(2 * MOST_NAMES):
            windows.report(f"model {number}", 1)
    assert MOST_NAMES == len(_lines(caplog))
