"""Runs made by hand, in each of the four formats, so that every answer is known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.conversations import ANTHROPIC, RESPONSES
from tests.lab.evidence.recordings import CHAT, Recording


@dataclass(frozen=True, slots=True)
class Step:
    """One model call: what the model says and calls, and what comes back."""

    says: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str = ""
    user: str = ""
    """What the user says after the result."""


def filler(number: int, words: int = 60) -> Step:
    """A step that nothing later refers to, and that refers to nothing."""
    text = "\n".join(f"plain talk {'abcdefghij'[number % 10]} goes on" for _ in range(words // 5))
    return Step(says="Next.", arguments={"n": "go"}, result=text)


def made(format: str, steps: Sequence[Step], *, system: str = "Be careful.") -> Recording:
    """Make a run of some steps."""
    messages: list[Any] = [{"role": "system", "content": system}] if format == CHAT else []
    messages += _user(format, "Begin.")
    starts = []
    for number, step in enumerate(steps):
        starts.append(len(messages))
        messages += _step(format, step, f"call-{number}")
        if step.user:
            messages += _user(format, step.user)
    return Recording("made", format, messages, starts, "" if format == CHAT else system)


def _user(format: str, text: str) -> list[Any]:
    if format == RESPONSES:
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
    if format in {CHAT, ANTHROPIC}:
        return [{"role": "user", "content": text}]
    return [{"role": "user", "parts": [{"text": text}]}]


def _step(format: str, step: Step, call_id: str) -> Iterator[Any]:
    arguments = dict(step.arguments)
    if format == CHAT:
        function = {"name": "read", "arguments": json.dumps(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        yield {"role": "assistant", "content": step.says or None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": call_id, "content": step.result}
    elif format == ANTHROPIC:
        use = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
        thinking = {"type": "thinking", "thinking": "secret_of_thought", "signature": "c2lnbmF0dXJl"}
        yield {"role": "assistant", "content": [thinking, *_text(step.says), use]}
        yield {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": step.result}]}
    elif format == RESPONSES:
        yield {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secret_of_thought"}]}
        if step.says:
            content = [{"type": "output_text", "text": step.says}]
            yield {"type": "message", "role": "assistant", "content": content}
        yield {"type": "function_call", "call_id": call_id, "name": "read", "arguments": json.dumps(arguments)}
        yield {"type": "function_call_output", "call_id": call_id, "output": step.result}
    else:
        thought = {"text": "secret_of_thought", "thought": True}
        texts = [{"text": step.says}] if step.says else []
        yield {"role": "model", "parts": [thought, *texts, {"functionCall": {"name": "read", "args": arguments}}]}
        response = {"name": "read", "response": {"output": step.result}}
        yield {"role": "user", "parts": [{"functionResponse": response}]}


def _text(text: str) -> list[Any]:
    return [{"type": "text", "text": text}] if text else []
