"""Small transcripts of every kind, in the shapes that their makers write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

CLAUDE = "claude-sonnet-4-5"
GPT = "gpt-5.4"


def jsonl(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write a file of lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def user_line(content: Any, uuid: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A user's line of a Claude Code session."""
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def answered(block: Mapping[str, Any], answer: str, uuid: str, parent: str, **more: Any) -> dict[str, Any]:
    """A line of the model in a Claude Code session: one block of the answer with that id."""
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 7,
    }
    message = {"id": answer, "role": "assistant", "model": CLAUDE, "content": [block], "usage": usage}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def use(call: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, text: str = "found") -> dict[str, Any]:
    """A tool's result."""
    return {"type": "tool_result", "tool_use_id": call, "content": text}


def text(words: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": words}


def session(calls: int = 3, size: int = 40, name: str = "Read") -> list[dict[str, Any]]:
    """A Claude Code session of so many calls, each with a result of `size` words."""
    lines: list[dict[str, Any]] = [
        {"type": "summary", "summary": "A title", "leafUuid": "x"},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "later"},
        user_line("Look at it.", "u0"),
    ]
    parent = "u0"
    for number in range(calls):
        own = f"a{number}"
        lines.append(answered(use(f"c{number}", name, path=f"/f{number}"), f"m{number}", own, parent))
        parent = f"r{number}"
        lines.append(user_line([result(f"c{number}", f"line {number} " * size)], parent, own))
    lines.append(answered(text("Done."), "last", "z", parent))
    return lines


def rollout(calls: int = 3, size: int = 40) -> list[dict[str, Any]]:
    """A Codex session of so many calls."""

    def line(kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {"timestamp": "2026-11-01T10:00:00Z", "type": kind, "payload": payload}

    counted = count(1)

    def tokens() -> dict[str, Any]:
        number = next(counted)
        last = {"input_tokens": 100 * number, "cached_input_tokens": 50 * number, "output_tokens": 9}
        info = {"last_token_usage": last, "total_token_usage": {"input_tokens": 1_000 * number}}
        return line("event_msg", {"type": "token_count", "info": info})

    lines = [
        line("session_meta", {"id": "x", "originator": "codex_cli_rs", "base_instructions": {"text": "You help."}}),
        line("turn_context", {"model": GPT}),
        line("event_msg", {"type": "user_message", "message": "Look."}),
        line(
            "response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]}
        ),
    ]
    for number in range(calls):
        call = {"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": '{"cmd": "ls"}'}
        output = {"type": "function_call_output", "call_id": f"c{number}", "output": f"line {number} " * size}
        lines += [line("response_item", call), tokens(), line("response_item", output)]
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    return [*lines, line("response_item", done), tokens()]


def chat(calls: int, size: int = 40) -> list[dict[str, Any]]:
    """A history of OpenAI's chat completions."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Look."}]
    for number in range(calls):
        function = {"name": "look", "arguments": f'{{"at": {number}}}'}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number} " * size},
        ]
    return messages


def bodies(calls: int = 3, size: int = 40) -> list[dict[str, Any]]:
    """The request bodies that a run sends."""
    return [{"model": "gpt-4o", "messages": chat(number, size), "temperature": 0} for number in range(1, calls + 1)]
