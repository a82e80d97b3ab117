"""What the protected text leaves is told where it is too little for a cut to free a useful stretch."""

from __future__ import annotations

import json
import logging

import pytest

from prompt_sidecar.calls import headers
from prompt_sidecar.calls.protected_text_log import MOST_RUNS, ProtectedTextLog
from prompt_sidecar.doors.grpc.conversion.responses import message
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.v1 import run_pb2
from tests.promises.engine import CALLER, Engine
from tests.trim.test_ceiling import CHAT, history

LIMIT = 6_000
TURNS = 40


def prompt(turns: int, system: int) -> bytes:
    """A history of so many turns behind a system prompt of so many tokens."""
    messages = [{"role": "system", "content": " ".join(["rule"] * system)}, *history(turns)]
    return json.dumps({"model": "", "messages": messages}).encode()


def played(engine: Engine, system: int) -> list[TrimAnswer]:
    """The answers of a run."""
    return [engine.trim(CHAT, prompt(turns, system)) for turns in range(1, TURNS, 3)]


def test_it_is_reported_from_the_first_cut_on() -> None:
    """The prompt fits, and the answer says what is left: the limit less what is never trimmed."""
    engine = Engine(limit=LIMIT)
    answers = played(engine, 4_000)
    cut = next(index for index, answer in enumerate(answers) if answer.cache.batch_points)
    assert cut
    assert {None} == {answer.tokens.protected_leaves for answer in answers[:cut]}
    for answer in answers[cut:]:
        left = answer.tokens.protected_leaves
        assert left is not None
        assert 0 < left < LIMIT - 4_000
        assert answer.fits
        assert str(left) == headers.facts(answer)["x-prompt-sidecar-protected-leaves"]
    figures = engine.figures()
    assert figures.tokens is not None
    assert left == figures.tokens.protected_leaves == message(run_pb2.RunFigures, figures).protected_text_leaves


@pytest.mark.parametrize(("preset", "system"), [("cache_first", 100), ("lean", 4_000), ("cap_only", 4_000)])
def test_it_is_not_reported(preset: str, system: int) -> None:
    """Not where enough is left, and not by policies that do not cut between marks."""
    answers = played(Engine(limit=LIMIT, preset=preset), system)
    assert {None} == {answer.tokens.protected_leaves for answer in answers}
    assert all("x-prompt-sidecar-protected-leaves" not in headers.facts(answer) for answer in answers)
    if preset == "cache_first":
        assert answers[-1].cache.batch_points


def test_a_run_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each run has one line, without its id; as many runs are remembered as are said."""
    log = ProtectedTextLog()
    tokens = played(Engine(limit=LIMIT), 4_000)[-1].tokens
    with caplog.at_level(logging.WARNING, "prompt_sidecar.protected_text"):
        for run in ("secret-one", "secret-one", "secret-two", "secret-one"):
            log.report(TrimCall(CALLER, run, CHAT), tokens)
    lines = [record.getMessage() for record in caplog.records]
    assert 2 == len(lines)
    assert f"leaves {tokens.protected_leaves:,} of {LIMIT:,} tokens" in lines[0]
    assert "secret" not in "".join(lines)
    for number in range(MOST_RUNS):
        log.report(TrimCall(CALLER, f"run {number}", CHAT), tokens)
    caplog.clear()
    log.report(TrimCall(CALLER, "secret-one", CHAT), tokens)
    assert 1 == len(caplog.records)
