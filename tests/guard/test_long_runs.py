"""A run of sixty turns under `enforce`, with a value in each place that a body has, is never stopped."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import pytest

from prompt_sidecar.guard.options import GuardOptions
from tests.promises.engine import Engine

ENFORCE: Final = GuardOptions(mode="enforce", scan_seconds=60)
TURNS: Final = 60
LETTERS: Final = "aK7mQ2xW9pLz4TnB6vRc8YdH3sFj5GeUiXo1"
SIGNATURE: Final = base64.b64encode(b"signed" * 20).decode()


def key_of(turn: int) -> str:
    """A made-up key of a turn; some come again."""
    at = turn * 7 % len(LETTERS)
    return "ghp_" + LETTERS[at:] + LETTERS[:at]


def address(key: str) -> str:
    """An address that the provider fetches, with a signature in it."""
    return f"https://b.s3.amazonaws.com/a.png?X-Amz-Signature={key[4:].encode().hex()[:64]}&token={key}"


def packed(key: str) -> str:
    """A text in base64."""
    return base64.b64encode(f"TOKEN={key}\n".encode()).decode()


def chat(turn: int, key: str) -> list[Any]:
    """One turn of chat completions."""
    call = {"id": f"c{turn}", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": key})}}
    parts = [
        {"type": "text", "text": f"use {key}"},
        {"type": "image_url", "image_url": {"url": address(key)}},
        {"type": "file", "file": {"filename": key, "file_data": f"data:text/plain;base64,{packed(key)}"}},
        {"type": "future_part", "payload": {"id": key}},
    ]
    thought = {"type": "thinking", "thinking": key, "signature": SIGNATURE}
    return [
        {"role": "user", "name": "ada", "content": parts},
        {"role": "assistant", "content": f"so {key}", "tool_calls": [call], "thinking_blocks": [thought]},
        {"role": "tool", "tool_call_id": f"c{turn}", "content": f"PASSWORD={key}"},
    ]


def messages(turn: int, key: str) -> list[Any]:
    """One turn of messages."""
    document = {"type": "document", "title": key, "source": {"type": "text", "media_type": "text/plain", "data": key}}
    result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": [{"type": "text", "text": key}, document]}
    return [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": address(key)}}, document]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": key, "signature": SIGNATURE},
                {"type": "redacted_thinking", "data": packed(key)},
                {"type": "tool_use", "id": f"c{turn}", "name": "f", "input": {"a": {"b": key}}},
            ],
        },
        {"role": "user", "content": [result, {"type": "future_part", "x": key}]},
        {"role": "assistant", "content": f"done with {key}"},
    ]


def responses(turn: int, key: str) -> list[Any]:
    """One turn of responses."""
    parts = [
        {"type": "input_text", "text": f"use {key}"},
        {"type": "input_image", "image_url": address(key)},
        {"type": "input_file", "filename": key, "file_data": f"data:text/plain;base64,{packed(key)}"},
    ]
    return [
        {"role": "user", "content": parts},
        {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": SIGNATURE},
        {"type": "function_call", "call_id": f"c{turn}", "name": "f", "arguments": json.dumps({"a": key})},
        {"type": "function_call_output", "call_id": f"c{turn}", "output": f"PASSWORD={key}"},
        {"type": "future_item", "text": key},
    ]


def gemini(turn: int, key: str) -> list[Any]:
    """One turn of Gemini."""
    call = {"functionCall": {"id": f"c{turn}", "name": "f", "args": {"a": key}}, "thoughtSignature": SIGNATURE}
    result = {"functionResponse": {"id": f"c{turn}", "name": "f", "response": {"result": key}}}
    file = {"inlineData": {"mimeType": "text/plain", "data": packed(key)}}
    return [
        {"role": "user", "parts": [{"text": key}, {"fileData": {"fileUri": address(key)}}, file]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [result]},
        {"role": "model", "parts": [{"text": f"done with {key}"}]},
    ]


def bedrock(turn: int, key: str) -> list[Any]:
    """One turn of Bedrock."""
    thought = {"reasoningContent": {"reasoningText": {"text": key, "signature": SIGNATURE}}}
    document = {"document": {"name": "a", "format": "txt", "source": {"bytes": packed(key)}}}
    result = {"toolResult": {"toolUseId": f"c{turn}", "content": [{"json": {"a": key}}, {"text": key}]}}
    return [
        {"role": "user", "content": [{"text": key}, document]},
        {
            "role": "assistant",
            "content": [thought, {"toolUse": {"toolUseId": f"c{turn}", "name": "f", "input": {"a": key}}}],
        },
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": f"done with {key}"}]},
    ]


def ai_sdk(turn: int, key: str) -> list[Any]:
    """One turn of the AI SDK."""
    reasoning = {"type": "reasoning", "text": key, "providerOptions": {"anthropic": {"signature": SIGNATURE}}}
    output = {"type": "json", "value": {"a": key}}
    call = {"type": "tool-call", "toolCallId": f"c{turn}", "toolName": "f", "input": {"a": key}}
    return [
        {"role": "user", "content": [{"type": "text", "text": key}, {"type": "image", "image": address(key)}]},
        {"role": "assistant", "content": [reasoning, call]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": f"c{turn}", "toolName": "f", "output": output}],
        },
        {"role": "assistant", "content": f"done with {key}"},
    ]


def beside(key: str) -> dict[str, Any]:
    """Members beside the history, with a value in each."""
    return {"metadata": {"user_id": key}, "stop": [key], "future": {"x": [key]}}


CASES: Final = {
    "openai_chat": ("messages", chat, "messages"),
    "anthropic_messages": ("messages", messages, "system"),
    "openai_responses": ("input", responses, "instructions"),
    "gemini_contents": ("contents", gemini, "systemInstruction"),
    "bedrock_converse": ("messages", bedrock, "system"),
    "ai_sdk": ("messages", ai_sdk, "system"),
}


def system(member: str, key: str) -> Any:
    """A system prompt with a value."""
    if member == "systemInstruction":
        return {"parts": [{"text": key}]}
    return f"the key is {key}"


@pytest.mark.parametrize("format", CASES)
def test_sixty_turns(format: str) -> None:
    """Each is answered, and what stands beside the history is masked at each; no rule refuses here."""
    member, made, leading = CASES[format]
    engine = Engine(limit=12_000, guard=ENFORCE)
    history: list[Any] = []
    for turn in range(TURNS):
        key = key_of(turn)
        history += made(turn, key)
        body = {"model": "m", **beside(key), member: history}
        if leading != member:
            body[leading] = (
                [{"text": f"the key is {key_of(0)}"}] if format == "bedrock_converse" else system(leading, key_of(0))
            )
        answer = engine.trim(format, json.dumps(body).encode(), recall_unavailable=True)
        sent = json.loads(answer.prompt.body or b"")
        assert key not in json.dumps({name: value for name, value in sent.items() if name in beside("")})
        assert "⟦github_token:" in json.dumps(sent, ensure_ascii=False)
        assert {"masked", "observed"} >= {each.action.value for each in answer.guard.findings}
