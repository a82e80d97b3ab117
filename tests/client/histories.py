"""Histories that grow past a small window, as an agent keeps them, for each API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

WINDOW: Final = 4_000
"""Tokens: eight of the results below fill it."""
FACT: Final = "the build number of iteration"


def result(number: int) -> str:
    """What the tool answers in an iteration: some 500 tokens, with one fact of its own."""
    return f"{FACT} {number} is {number * 7919}\n" + f"log line of iteration {number}: nothing happened\n" * 50


def _chat(number: int) -> list[Any]:
    call = {"id": f"call-{number}", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call-{number}", "content": result(number)},
    ]


def _responses(number: int) -> list[Any]:
    return [
        {"type": "function_call", "call_id": f"call-{number}", "name": "read_log", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"call-{number}", "output": result(number)},
    ]


def _anthropic(number: int) -> list[Any]:
    use = {"type": "tool_use", "id": f"call-{number}", "name": "read_log", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": f"call-{number}", "content": result(number)}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]


STEPS: Final[Mapping[str, Callable[[int], list[Any]]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _anthropic,
}


def history(format: str, iterations: int) -> list[Any]:
    """The user's question, and so many iterations."""
    steps = [message for number in range(1, iterations + 1) for message in STEPS[format](number)]
    return [{"role": "user", "content": "Which build failed?"}, *steps]
