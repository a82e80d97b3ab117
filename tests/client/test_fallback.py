"""What goes to the model without the sidecar: valid whatever is left out, in every format, and never more than it must.

The rules are tried on histories with all that real ones have: several calls at once, answers that come late, ids that
come again, users' words in between, thinking, marks of the cache.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.client import Client
from prompt_sidecar.client.fallback_rules import JsonPrompt, changed_thinking, fall_back, leave_out, without
from prompt_sidecar.client.kept import ValuesByRun
from prompt_sidecar.client.native import dumped
from prompt_sidecar.client.sent import LastPrompt
from prompt_sidecar.providers.claude import is_bound
from prompt_sidecar.providers.table import MESSAGES
from tests.client.histories import history
from tests.client.serving import client_of
from tests.client.window import defects

TOLD = "the user's words {}"


def _chat(step: int, calls: int, *, words: bool) -> list[Any]:
    made = [
        {"id": f"c{step}-{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(calls)
    ]
    answers = [{"role": "tool", "tool_call_id": call["id"], "content": "x" * 100} for call in made]
    asked = [{"role": "user", "content": TOLD.format(step)}] if words else []
    return [{"role": "assistant", "content": "I look.", **({"tool_calls": made} if made else {})}, *answers, *asked]


def _responses(step: int, calls: int, *, words: bool) -> list[Any]:
    made = [{"type": "function_call", "call_id": f"c{step}-{n}", "name": "f", "arguments": "{}"} for n in range(calls)]
    answers = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x" * 100} for call in made]
    asked = [{"role": "user", "content": TOLD.format(step)}] if words else []
    return [{"type": "reasoning", "id": f"rs{step}", "summary": []}, *made, *answers, *asked]


def _anthropic(step: int, calls: int, *, words: bool) -> list[Any]:
    made = [{"type": "tool_use", "id": f"c{step}-{n}", "name": "f", "input": {}} for n in range(calls)]
    blocks: list[Any] = [{"type": "tool_result", "tool_use_id": use["id"], "content": "x" * 100} for use in made]
    blocks += [{"type": "text", "text": TOLD.format(step)}] if words or not calls else []
    thought = {"type": "thinking", "thinking": "", "signature": f"s{step}"}
    text = {"type": "text", "text": "I look."}
    return [{"role": "assistant", "content": [thought, text, *made]}, {"role": "user", "content": blocks}]


def _bedrock(step: int, calls: int, *, words: bool) -> list[Any]:
    made = [{"toolUse": {"toolUseId": f"c{step}-{n}", "name": "f", "input": {}}} for n in range(calls)]
    blocks: list[Any] = [
        {"toolResult": {"toolUseId": use["toolUse"]["toolUseId"], "content": [{"text": "x" * 100}]}} for use in made
    ]
    blocks += [{"text": TOLD.format(step)}] if words or not calls else []
    thought = {"reasoningContent": {"reasoningText": {"text": "", "signature": f"s{step}"}}}
    return [
        {"role": "assistant", "content": [thought, *made, {"text": "I look."}]},
        {"role": "user", "content": blocks},
    ]


def _gemini(step: int, calls: int, *, words: bool) -> list[Any]:
    parts: list[Any] = [{"functionResponse": {"name": "f", "response": {"x": "x" * 100}}} for _ in range(calls)]
    parts += [{"text": TOLD.format(step)}] if words or not calls else []
    call = {"functionCall": {"name": "f", "args": {}}}
    return [{"role": "model", "parts": [{"text": "I look."}, *[call] * calls]}, {"role": "user", "parts": parts}]


def _ai_sdk(step: int, calls: int, *, words: bool) -> list[Any]:
    made = [{"type": "tool-call", "toolCallId": f"c{step}-{n}", "toolName": "f", "input": {}} for n in range(calls)]
    answers: list[Any] = [
        {
            "type": "tool-result",
            "toolCallId": call["toolCallId"],
            "toolName": "f",
            "output": {"type": "text", "value": "x" * 100},
        }
        for call in made
    ]
    asked = [{"role": "user", "content": TOLD.format(step)}] if words else []
    text = {"type": "text", "text": "I look."}
    return [
        {"role": "assistant", "content": [text, *made]},
        *([{"role": "tool", "content": answers}] if made else []),
        *asked,
    ]


STEPS = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _anthropic,
    "bedrock_converse": _bedrock,
    "gemini_contents": _gemini,
    "ai_sdk": _ai_sdk,
}
FIRST = {
    "gemini_contents": {"role": "user", "parts": [{"text": "Go."}]},
    "bedrock_converse": {"role": "user", "content": [{"text": "Go."}]},
}
SYSTEM = {"openai_chat": [{"role": "system", "content": "Be brief."}]}


def prompt(format: str, steps: list[tuple[int, bool]]) -> JsonPrompt:
    """A body of this format."""
    messages = [*SYSTEM.get(format, []), FIRST.get(format, {"role": "user", "content": "Go."})]
    for step, (calls, words) in enumerate(steps):
        messages += STEPS[format](step, calls, words=words)
    body = JsonPrompt.of({MESSAGES[format].messages: messages, "tools": [{"name": "f"}]}, MESSAGES[format])
    assert body is not None
    return body


def pairs(format: str, messages: list[Any]) -> tuple[list[str], list[str]]:
    """The ids of all calls, and of all answers; in Gemini's format, which has none, the names."""
    if format == "gemini_contents":
        parts = [part for message in messages for part in message["parts"]]
        return ["f" for part in parts if "functionCall" in part], ["f" for part in parts if "functionResponse" in part]
    shape = MESSAGES[format]
    return (
        sorted(call for message in messages for call in shape.calls(message)),
        sorted(answer for message in messages for answer in shape.answers(message)),
    )


@pytest.mark.parametrize("format", STEPS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_is_left_is_valid(format: str, data: st.DataObject) -> None:
    """Calls and answers go together; users' and the system's words, the beginning and the newest iteration stay."""
    steps = data.draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
    body = prompt(format, steps)
    size = len(dumped(body.json()))
    made, left = leave_out(body, data.draw(st.integers(0, size)), [])

    calls, answers = pairs(format, made.messages)
    assert calls == answers
    assert SYSTEM.get(format, []) == made.messages[: len(SYSTEM.get(format, []))]
    text = json.dumps(made.messages)
    assert [TOLD.format(step) in json.dumps(body.messages) for step in range(len(steps))] == [
        TOLD.format(step) in text for step in range(len(steps))
    ]
    newest = STEPS[format](len(steps) - 1, steps[-1][0], words=steps[-1][1])
    if format == "bedrock_converse":  # words of users that stood alone are one message with the next
        roles = [message["role"] for message in made.messages]
        assert all(one != two for one, two in itertools.pairwise(roles))
    else:
        assert newest == made.messages[-len(newest) :]
    assert (left == 0) == (made.messages == body.messages)
    if format in ("openai_chat", "anthropic_messages", "openai_responses"):
        assert [] == defects(format, made.json())


@pytest.mark.parametrize("format", STEPS)
def test_oldest_first_and_no_more_than_needed(format: str) -> None:
    """What goes is a beginning of the history, and with one iteration fewer gone it would be too long."""
    body = prompt(format, [(1, False)] * 10)
    size = len(dumped(body.json()))
    made, left = leave_out(body, size // 2, [])
    steps = len(STEPS[format](0, 1, words=False))
    assert len(dumped(made.json())) <= size // 2
    assert body.messages[-steps * (10 - left) :] == made.messages[-steps * (10 - left) :]
    iteration = len(dumped(STEPS[format](0, 1, words=False))) - 1
    assert len(dumped(made.json())) + iteration > size // 2


COMPACTIONS = {
    "anthropic_messages": {"role": "assistant", "content": [{"type": "compaction", "content": "All."}]},
    "openai_responses": {"type": "compaction", "encrypted_content": "gAAA"},
    "ai_sdk": {
        "role": "assistant",
        "content": [{"type": "text", "text": "All.", "providerOptions": {"anthropic": {"type": "compaction"}}}],
    },
}


@pytest.mark.parametrize("format", sorted(COMPACTIONS))
def test_all_up_to_a_compaction_stays(format: str) -> None:
    """Without it the provider would read all that it takes the place of; what it keeps it must have."""
    plain = prompt(format, [(1, False)] * 6)
    body = replace(plain, messages=[*plain.messages[:4], COMPACTIONS[format], *plain.messages[4:]])
    made, left = leave_out(body, 0, [])
    assert left
    assert body.messages[:5] == made.messages[:5]


def test_pinned_messages_stay() -> None:
    """With the rest of their iteration, so that calls keep their answers."""
    body = prompt("openai_chat", [(2, False)] * 6)
    made, left = leave_out(body, 0, [body.messages[4]])
    assert 4 == left
    assert body.messages[2:5] == made.messages[2:5]


def test_messages_that_have_loaded_tools_stay() -> None:
    """The provider knows deferred tools by them alone; an item that offers tools is no iteration."""
    references = [{"type": "tool_reference", "tool_name": "t"}]
    found = {"type": "tool_search_tool_search_result", "tool_references": references}
    search = {"type": "tool_search_tool_result", "tool_use_id": "s", "content": found}
    result = {"type": "tool_result", "tool_use_id": "q", "content": references}
    call = {"type": "tool_use", "id": "q", "name": "ToolSearch", "input": {}}
    output = {"type": "tool_search_output", "call_id": "q", "tools": [{"type": "function", "name": "t"}]}
    offering = {"type": "additional_tools", "tools": [{"type": "function", "name": "t"}]}
    loaded: list[tuple[str, list[Any]]] = [
        ("anthropic_messages", [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]),
        ("anthropic_messages", [{"role": "assistant", "content": [search]}, {"role": "user", "content": "Go on."}]),
        ("openai_responses", [{"type": "tool_search_call", "call_id": "q"}, output]),
        ("openai_responses", [offering]),
    ]
    for format, messages in loaded:
        body = prompt(format, [(1, False)] * 6)
        steps = len(STEPS[format](0, 1, words=False))
        at = len(body.messages) - 3 * steps
        body = replace(body, messages=[*body.messages[:at], *messages, *body.messages[at:]])
        made, left = leave_out(body, 0, [])
        assert 5 == left
        assert messages == [each for each in made.messages if each in messages]


def test_an_answer_that_comes_late_goes_with_its_call() -> None:
    """A call in one iteration and its answer in a later one are left out together, or stay together."""
    body = prompt("openai_responses", [(1, False)] * 4)
    messages = list(body.messages)
    late = messages.pop(3)  # the answer of the first call
    messages.insert(9, late)
    for most in range(0, len(dumped(messages)), 50):
        made, _ = leave_out(JsonPrompt({"input": messages}, messages, body.shape), most, [])
        calls, answers = pairs("openai_responses", made.messages)
        assert calls == answers


def sent(format: str, asked: Any, made: Any, **more: Any) -> LastPrompt:
    """What went to the model last."""
    return LastPrompt(format, (dumped(asked),), made=dumped(made), **more)


def fallen(format: str, value: Any, last: LastPrompt | None) -> Any:
    """A fallback."""
    return fall_back(value, last, format=format, shape=MESSAGES[format], bound=True, pinned=())


@pytest.mark.parametrize("mark", [{"cache_control": {"type": "ephemeral"}}, {"prompt_cache_breakpoint": {}}])
def test_a_history_that_was_changed_keeps_what_it_has_in_common(mark: dict[str, Any]) -> None:
    """An agent that moves marks of the cache, or words its newest message anew, gets the trimmed beginning too."""
    asked = prompt("anthropic_messages", [(1, False)] * 6).json()
    asked["messages"][-1]["content"][0] |= mark
    made = json.loads(json.dumps(asked))
    made["messages"][2]["content"][0]["content"] = "[content elided]"
    grown = prompt("anthropic_messages", [(1, False)] * 7).json()  # the mark is gone from where it was
    found = fallen("anthropic_messages", grown, sent("anthropic_messages", asked, made))

    assert ("last_prompt", 0) == (found.kind, found.thinking_removed)
    assert made["messages"][:12] == found.prompt["messages"][:12]
    assert grown["messages"][12:] == found.prompt["messages"][12:]


def test_another_system_prompt_is_the_agents() -> None:
    """What the agent says now goes; the sidecar's text stays in the other members; bound thinking goes."""
    asked = {**prompt("anthropic_messages", [(1, False)] * 3).json(), "system": "It is ten."}
    made = {**asked, "system": "It is ten. A marker is a label."}
    same = fallen("anthropic_messages", asked, sent("anthropic_messages", asked, made))
    other = fallen("anthropic_messages", {**asked, "system": "It is eleven."}, sent("anthropic_messages", asked, made))

    assert (made["system"], 0) == (same.prompt["system"], same.thinking_removed)
    assert ("It is eleven.", 3) == (other.prompt["system"], other.thinking_removed)
    assert "thinking" not in json.dumps(other.prompt["messages"])


def test_thinking_before_the_first_change_stays() -> None:
    """And what was removed does not come back, though the agent sends it again."""
    body = prompt("anthropic_messages", [(1, False)] * 8)
    changed = prompt("anthropic_messages", [(1, False)] * 8)
    changed.messages[8]["content"][0]["content"] = "another"
    new = changed_thinking(changed, body)
    assert 4 == len(new)
    last = sent("anthropic_messages", body.json(), without(body, new).json(), removed=new)
    grown = prompt("anthropic_messages", [(1, False)] * 9).json()
    found = fallen("anthropic_messages", grown, last)
    assert ["s0", "s1", "s2", "s3", "s8"] == [
        block["signature"]
        for message in found.prompt["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert frozenset() == changed_thinking(body, body)


def test_bedrocks_reasoning_goes_too() -> None:
    """From the first change on, where iterations are left out."""
    asked = prompt("bedrock_converse", [(1, False)] * 10).json()
    last = sent("bedrock_converse", asked, asked, refused=True)
    found = fallen("bedrock_converse", asked, last)
    assert ("left_out", True) == (found.kind, found.left_out > 0)
    assert found.thinking_removed
    assert "reasoningContent" not in json.dumps(found.prompt)


@pytest.mark.parametrize(
    ("model", "body", "bound"),
    [
        ("claude-opus-5-5", {}, True),
        ("us.anthropic.claude-fable-5-1-v1:0", {}, True),
        ("claude-newest-9", {}, True),
        ("claude-opus-4-6", {}, False),
        ("claude-fable-5", {}, False),
        ("gpt-5.4", {}, False),
        (None, {"model": "claude-sonnet-5-5"}, True),
        (None, {"modelId": "anthropic.claude-3-5-sonnet-20241022-v2:0"}, False),
        (None, [], True),
        (None, {"thinking": {"type": "enabled", "budget_tokens": 1_024}}, False),
    ],
)
def test_models_that_bind_their_thinking(model: Any, body: Any, *, bound: bool) -> None:
    """By name, unknown versions of Claude too; where none is named, but for thinking with a budget."""
    assert bound == is_bound(model, body)


def test_prompts_are_remembered_within_a_bound() -> None:
    """The runs that were silent for longest are forgotten, and counted; the newest is kept whatever it takes."""
    last = ValuesByRun[LastPrompt](lambda sent: sent.weight, 1_000)
    for number in range(10):
        last.keep(f"r{number}", LastPrompt("openai_chat", (b"x" * 300,)))
    assert 7 == last.forgotten
    assert [None, True] == [last.of("r6"), last.of("r9") is not None]
    last.keep("large", LastPrompt("openai_chat", (b"x" * 5_000,)))
    assert (10, None) == (last.forgotten, last.of("r9"))
    assert None is not last.of("large")
    nothing = ValuesByRun[LastPrompt](lambda sent: sent.weight, 0)
    nothing.keep("r", LastPrompt("openai_chat", (b"x",)))
    assert None is nothing.of("r")


def test_the_agents_objects_are_its_own() -> None:
    """What an agent does to a prompt, or to its history, reaches no later fallback; what it gave is not changed."""
    with client_of() as (client, served):
        messages = history("openai_chat", 3)
        made = client.trim("r", messages)
        served.server.stop(0)
        made.prompt.clear()
        before = json.dumps(messages)
        found = client.trim("r", messages)
        found.prompt.append("the agent's")
        again = client.trim("r", messages)
        assert json.dumps(messages) == before
        assert [message for message in again.prompt if message["role"] != "system"] == messages
        assert all(any(each is message for each in again.prompt) for message in messages)


@pytest.mark.parametrize(
    "wrong", [[], "text", {"messages": "text"}, [None, 1, "x"], {"messages": [{"role": None}]}, {"messages": None}]
)
@pytest.mark.parametrize("format", [*STEPS, "mcp_tool_result"])
def test_prompts_of_no_shape_go_as_they_are(format: Any, wrong: Any) -> None:
    """What a provider would refuse is the provider's to refuse: nothing is raised here, again and again."""
    with Client("127.0.0.1:1", deadline=60.0) as client:
        for _ in range(3):
            assert wrong == client.trim("r", wrong, format=format).prompt
            client._engine.refused("r")  # noqa: SLF001  # as a report would


def test_a_side_call_and_a_dry_run_are_no_prompts_of_the_run() -> None:
    """They change nothing of what is remembered, and go as they were given."""
    with client_of() as (client, served):
        messages = history("openai_chat", 4)
        client.trim("r", messages)
        client.trim("r", messages[:3], side_call=True)
        client.trim("r", messages[:3], dry_run=True)
        served.server.stop(0)
        assert "as_given" == client.trim("r", messages[:3], side_call=True).fallback
        assert "last_prompt" == client.trim("r", messages).fallback
