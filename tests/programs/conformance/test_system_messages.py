"""Where Anthropic's validator lets a system message stand in the history, and for which models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs.conformance.anthropic_messages import defects

USER = {"role": "user", "content": "Go."}
ASSISTANT = {"role": "assistant", "content": "So."}
SYSTEM = {"role": "system", "content": "Be quick."}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}
SEARCHED = {
    "role": "assistant",
    "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    ],
}


def found(*messages: dict[str, Any], model: str = "claude-fable-5-1") -> list[str]:
    """The defects of a body."""
    return defects({"model": model, "messages": list(messages)})


@pytest.mark.parametrize(
    "messages",
    [
        (USER, SYSTEM),
        (USER, SYSTEM, ASSISTANT, USER),
        (USER, CALL, RESULT, SYSTEM),
        (USER, CALL, RESULT, SYSTEM, SYSTEM, ASSISTANT, USER),
        (USER, SEARCHED, SYSTEM),
    ],
)
def test_places_that_are_taken(messages: tuple[dict[str, Any], ...]) -> None:
    """After a user's turn or a server tool's result, and before an assistant's turn or at the end."""
    assert [] == found(*messages)


@pytest.mark.parametrize(
    "messages",
    [
        (SYSTEM, USER),
        (USER, SYSTEM, USER),
        (USER, ASSISTANT, SYSTEM, USER),
        (USER, ASSISTANT, SYSTEM),
        (USER, CALL, SYSTEM, RESULT),
        (USER, SYSTEM, SYSTEM, USER),
    ],
)
def test_places_that_are_refused(messages: tuple[dict[str, Any], ...]) -> None:
    """Everywhere else."""
    assert found(*messages)


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-fable-5", True),
        ("claude-fable-5-2", True),
        ("claude-opus-4-8-20260528", True),
        ("claude-opus-5-5", True),
        ("claude-sonnet-5-5", True),
        ("claude-haiku-5-5", True),
        ("claude-sonnet-5", False),
        ("claude-sonnet-5-20260630", False),
        ("claude-opus-4-7", False),
        ("claude-opus-4-20250514", False),
        ("claude-haiku-4-5", False),
        ("claude-3-5-sonnet-latest", False),
    ],
)
def test_older_models_take_no_system_messages(model: str, taken: bool) -> None:
    """Models before Opus 4.8 and Sonnet 5 take none."""
    assert taken == (not found(USER, SYSTEM, model=model))
