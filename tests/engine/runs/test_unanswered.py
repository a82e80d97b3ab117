"""Calls without results in a history that goes on are findings, once each; nothing of them is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.guard_calls import UNANSWERED_CALL, Finding, FindingAction
from prompt_sidecar.telemetry.changes import rule_label
from tests.doors.http.habits import APIS, Turn
from tests.promises.engine import Engine

FORMATS = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic_messages"}


def _calls(api: str, *ids: str) -> list[Any]:
    """An assistant's turn with these calls."""
    entries = [APIS[api].answer_entries(Turn(None, each)) for each in ids]
    if api == "chat":
        return [{**entries[0][0], "tool_calls": [each[0]["tool_calls"][0] for each in entries]}]
    if api == "messages":
        return [{**entries[0][0], "content": [each[0]["content"][-1] for each in entries]}]
    return [item for each in entries for item in each]


def _result(api: str, call: str) -> Any:
    return APIS[api].result(Turn(call=call), "line 1 of the log")


def _found(engine: Engine, api: str, history: list[Any]) -> list[tuple[int, int]]:
    """Message and count of each finding; the prompt comes back whole."""
    body = json.dumps({APIS[api].history: history, "model": "gpt-4o"}).encode()
    answer = engine.trim(FORMATS[api], body)
    assert all(json.dumps(entry).encode() in body for entry in history)
    made = json.loads(answer.prompt.body or b"{}")[APIS[api].history]
    assert [entry for entry in made if entry in history] == history
    found = [(each.message_index, each.count) for each in answer.guard.findings]
    expected = [Finding(UNANSWERED_CALL, FindingAction.OBSERVED, at, -1, count) for at, count in found]
    assert expected == answer.guard.findings
    return found


@pytest.mark.parametrize("api", FORMATS)
def test_calls_are_reported_when_the_history_goes_on(api: str) -> None:
    """Not while their results may still come, and not again; a fresh process reports them when it first sees them."""
    asked, spoken = APIS[api].asked, APIS[api].spoken
    engine = Engine(limit=100_000)
    history = [asked("Go"), *_calls(api, "c1", "c2", "c3"), _result(api, "c1")]
    at = 1
    assert [] == _found(engine, api, history)
    history += [spoken("One result is enough."), asked("Go on.")]
    assert [(at, 2)] == _found(engine, api, history)
    history += [*_calls(api, "c4"), _result(api, "c4")]
    assert [] == _found(engine, api, history)
    second = len(history)
    history += [*_calls(api, "c5"), asked("No."), spoken("Well.")]
    assert [(second, 1)] == _found(engine, api, history)
    assert [(at, 2), (second, 1)] == _found(Engine(limit=100_000), api, history)


def test_the_rule_has_its_own_label() -> None:
    """In metrics it is none of the users' own."""
    assert UNANSWERED_CALL == rule_label(UNANSWERED_CALL)
