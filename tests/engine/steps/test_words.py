"""What a user says in mid-run stays in every format, and the prompt stays valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.entries import Action
from tests.conformance.table import CASES
from tests.engine.runs import making
from tests.promises.engine import Engine

LIMIT = 8_000
ITERATIONS = 60
OUTPUT = "src/module.py:12: warning: unused name\n" * 40


@dataclass(frozen=True, slots=True)
class Shape:
    """How a format writes a call, its result beside words or alone, and a text of either side."""

    member: str
    call: Callable[[str], dict[str, Any]]
    result: Callable[[str], dict[str, Any]]
    text: Callable[[str, str], dict[str, Any]]
    beside: Callable[[str, str], dict[str, Any]] | None = None


def _tool(id: str) -> dict[str, Any]:
    return {"id": id, "name": "read"}


SHAPES: Mapping[str, Shape] = {
    "openai_chat": Shape(
        "messages",
        lambda id: {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        lambda id: {"role": "tool", "tool_call_id": id, "content": OUTPUT},
        lambda role, text: {"role": role, "content": text},
    ),
    "anthropic_messages": Shape(
        "messages",
        lambda id: {"role": "assistant", "content": [{"type": "tool_use", "input": {}, **_tool(id)}]},
        lambda id: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": OUTPUT}]},
        lambda role, text: {"role": role, "content": [{"type": "text", "text": text}]},
        lambda id, text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": OUTPUT}, {"type": "text", "text": text}],
        },
    ),
    "openai_responses": Shape(
        "input",
        lambda id: {"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"},
        lambda id: {"type": "function_call_output", "call_id": id, "output": OUTPUT},
        lambda role, text: {"role": role, "content": text},
    ),
    "gemini_contents": Shape(
        "contents",
        lambda id: {"role": "model", "parts": [{"functionCall": {"args": {}, **_tool(id)}}]},
        lambda id: {"role": "user", "parts": [{"functionResponse": {"response": {"output": OUTPUT}, **_tool(id)}}]},
        lambda role, text: {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]},
    ),
    "bedrock_converse": Shape(
        "messages",
        lambda id: {"role": "assistant", "content": [{"toolUse": {"toolUseId": id, "name": "read", "input": {}}}]},
        lambda id: {"role": "user", "content": [{"toolResult": {"toolUseId": id, "content": [{"text": OUTPUT}]}}]},
        lambda role, text: {"role": role, "content": [{"text": text}]},
        lambda id, text: {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": id, "content": [{"text": OUTPUT}]}}, {"text": text}],
        },
    ),
}
AROUND: Mapping[str, dict[str, Any]] = {
    "bedrock_converse": {"toolConfig": {"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {}}}}]}}
}


def answer_of(number: int) -> str:
    """What the user says in one iteration."""
    return f"Rule {number}: mind the names of modules."


def spoken(iterations: int) -> list[int]:
    """The iterations after which the user speaks."""
    return list(range(2, iterations, 6))


def body(format: str, iterations: int, *, beside: bool = False) -> bytes:
    """A request in which the user speaks after some iterations, alone or in the message with the result."""
    shape = SHAPES[format]
    messages = [shape.text("user", "Find the bug.")]
    for number in range(iterations):
        messages.append(shape.call(f"call_{number}"))
        words = number in spoken(iterations)
        if words and beside and shape.beside is not None:
            messages.append(shape.beside(f"call_{number}", answer_of(number)))
            continue
        messages.append(shape.result(f"call_{number}"))
        if words:
            messages += [shape.text("assistant", "I have read it."), shape.text("user", answer_of(number))]
    return json.dumps(AROUND.get(format, {}) | {shape.member: messages}).encode()


def check(format: str, answer: TrimAnswer, iterations: int) -> None:
    """All words are there, and the provider takes the prompt."""
    assert answer.prompt.body is not None
    assert answer.fits
    assert [] == CASES[format].defects(json.loads(answer.prompt.body))
    assert [] == [number for number in spoken(iterations) if answer_of(number).encode() not in answer.prompt.body]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("format", SHAPES)
def test_words_stay(format: str, beside: bool) -> None:
    """In the prompts of a growing run, while the iterations around them are clipped and dropped."""
    engine = Engine(limit=LIMIT)
    for iterations in range(2, ITERATIONS + 1, 2):
        answer = engine.trim(format, body(format, iterations, beside=beside))
        check(format, answer, iterations)
    assert {Action.CLIPPED, Action.DROPPED} <= {trim.action for trim in answer.trimmed.trims}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("format", SHAPES)
def test_another_process_and_an_adopted_prompt(format: str, beside: bool) -> None:
    """A fresh process, one that is handed the revision, and one that is sent its own prompt come to the same bytes."""
    engine = Engine(limit=LIMIT)
    for iterations in range(2, ITERATIONS + 1, 2):
        answer = engine.trim(format, body(format, iterations, beside=beside))
    sent = body(format, ITERATIONS, beside=beside)
    assert answer.prompt.body == Engine(limit=LIMIT).trim(format, sent).prompt.body
    assert answer.prompt.body == Engine(limit=LIMIT).trim(format, sent, revision=answer.prompt.revision).prompt.body
    assert json.loads(answer.prompt.body or b"") == json.loads(
        engine.trim(format, answer.prompt.body or b"").prompt.body or b""
    )


@pytest.mark.parametrize("format", SHAPES)
def test_the_last_resort(format: str) -> None:
    """Where words alone are too much the oldest go, so that the provider takes the prompt; they can be fetched."""
    engine = Engine(limit=300)
    answer = engine.trim(format, body(format, 2 * ITERATIONS))
    assert answer.fits
    assert answer.prompt.body is not None
    assert [] == CASES[format].defects(json.loads(answer.prompt.body))
    stay = [number for number in spoken(2 * ITERATIONS) if answer_of(number).encode() in answer.prompt.body]
    assert 0 < len(stay) < len(spoken(2 * ITERATIONS))
    assert stay == spoken(2 * ITERATIONS)[-len(stay) :]
    assert spoken(2 * ITERATIONS)[-1] in stay
    gone = [trim for trim in answer.trimmed.trims if trim.action is Action.DROPPED]
    originals = [engine.original(trim.stash_id) or b"" for trim in gone]
    assert any(b"Rule 2: mind" in original for original in originals)


@pytest.mark.parametrize("format", making.FORMATS)
def test_a_task_that_follows_a_greeting(format: str) -> None:
    """The first user message stays, though the model spoke before it and nothing else fits."""
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "How can I help?"}]
    for number in range(20):
        text = "Find the bug." if not number else f"And look at module {number}. " * 20
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "I did. " * 30}]
    messages.append({"role": "user", "content": "What is it?"})
    answer = Engine(limit=150).trim(format, making.body(format, messages))
    assert {Action.DROPPED} & {trim.action for trim in answer.trimmed.trims}
    assert b"Find the bug." in (answer.prompt.body or b"")
