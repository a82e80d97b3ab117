"""Where Anthropic's validator lets a system message stand in the history, and for which models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.anthropic_messages import defects, worsened

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


ADDS = {
    "role": "system",
    "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read"}}],
}
EFFORT = {"role": "system", "content": [], "output_config": {"effort": "low"}}


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
        (USER, ADDS),
        (USER, {"role": "system", "content": "Now.", "clear_at": "next_user_message"}, SYSTEM),
        (USER, EFFORT, USER),
        (USER, ASSISTANT, EFFORT, USER),
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
        (USER, SEARCHED, ADDS),
        (USER, EFFORT, SYSTEM, USER),
        (USER, {"role": "system", "content": []}),
        (USER, {"role": "system", "content": [{"type": "image", "source": {}}]}),
        (USER, {"role": "system", "content": "Now.", "clear_at": "later"}),
        (USER, ADDS | {"clear_at": "next_user_message"}),
        (USER, SYSTEM | {"clear_at": "next_user_message", "output_config": {"effort": "low"}}),
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


@pytest.mark.parametrize(
    ("sent", "got", "complaints"),
    [
        ((USER, SYSTEM, SYSTEM), (USER, SYSTEM, SYSTEM), 0),
        ((USER, SYSTEM, ASSISTANT, USER, SYSTEM), (USER, SYSTEM), 0),
        ((USER, SYSTEM, ASSISTANT, USER, SYSTEM), (USER, SYSTEM, SYSTEM), 1),
        ((USER, ADDS, ASSISTANT, USER), (USER, ASSISTANT, USER), 1),
        ((USER, EFFORT, ASSISTANT, USER), (USER, ASSISTANT, USER), 1),
    ],
)
def test_what_no_agent_accepts(sent: Any, got: Any, complaints: int) -> None:
    """System messages that a cut has brought together, and changes of tools or of the effort that it has taken."""
    assert complaints == len(worsened({"messages": list(sent)}, {"messages": list(got)}))
