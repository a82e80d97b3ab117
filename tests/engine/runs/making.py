"""Prompts and engines for tests of the use cases: plain runs in either format, and what of an answer is compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prompt_sidecar.facts.trim_calls import Phases, TrimAnswer
from tests.oracle.runs import Run, body_of, dumps
from tests.oracle.shapes import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT
from tests.promises.engine import Engine

__all__ = ["ANTHROPIC_MESSAGES", "FORMATS", "OPENAI_CHAT", "Engine"]

LIMIT = 6_000
"""Tokens: eight iterations of the histories below pass it, and our own text has room in it."""
ROOM = {"registry_share": 0.02}
"""A policy under which a registry fits."""


def result_text(number: int) -> str:
    """A tool's output of some 700 tokens that no other iteration has."""
    return "".join(f"src/module_{number}.py:{line}: warning: unused name value_{number}\n" for line in range(45))


def history(format: str, iterations: int, *, task: str = "Find the bug.") -> list[Any]:
    """An agent's history: a task, then a call with its result for each iteration."""
    messages: list[Any] = []
    if format == OPENAI_CHAT:
        messages += [{"role": "system", "content": "You are careful."}, {"role": "user", "content": task}]
    else:
        messages.append({"role": "user", "content": [{"type": "text", "text": task}]})
    for number in range(iterations):
        arguments = {"path": f"src/module_{number}.py"}
        text, call_id = f"Step {number}: I read the next module.", f"call_{number}"
        if format == OPENAI_CHAT:
            call = {"id": call_id, "type": "function", "function": {"name": "read", "arguments": json.dumps(arguments)}}
            messages.append({"role": "assistant", "content": text, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": result_text(number)})
        else:
            use = {"type": "tool_use", "id": call_id, "name": "read", "input": arguments}
            messages.append({"role": "assistant", "content": [{"type": "text", "text": text}, use]})
            block = {"type": "tool_result", "tool_use_id": call_id, "content": result_text(number)}
            messages.append({"role": "user", "content": [block]})
    return messages


def run_of(format: str, iterations: int) -> Run:
    """That history as a run."""
    return Run("plain", format, history(format, iterations), None if format == OPENAI_CHAT else "You are careful.")


def body(format: str, messages: Sequence[Any], *, system: object = "You are careful.") -> bytes:
    """The request body that sends these messages."""
    return body_of(format, [dumps(message) for message in messages], system=system)


def send(engine: Engine, format: str, iterations: int, **fields: Any) -> TrimAnswer:
    """Send a history of so many iterations at once."""
    return engine.trim(format, body(format, history(format, iterations)), **fields)


def grown(format: str, iterations: int = 12, **fields: Any) -> tuple[Engine, TrimAnswer]:
    """An engine that was sent a history as it grew, and its last answer."""
    engine = Engine(limit=LIMIT, policy=ROOM, **fields)
    answer = send(engine, format, 0)
    for number in range(1, iterations + 1):
        answer = send(engine, format, number)
    return engine, answer


def facts(answer: TrimAnswer) -> TrimAnswer:
    """An answer without the time that it took, and without the sums of the run so far."""
    prompt, trimmed = answer.prompt, answer.trimmed
    return replace(
        answer,
        phases=Phases(),
        savings=replace(answer.savings, comparison=None),
        prompt=replace(prompt, edits=tuple(prompt.edits), own_text=tuple(prompt.own_text)),
        trimmed=replace(trimmed, trims=tuple(trimmed.trims), stash_entries=tuple(trimmed.stash_entries)),
    )


def slices(raw: bytes | None) -> list[Any]:
    """The messages of a returned body, decoded."""
    value = json.loads(raw or b"")
    found: list[Any] = value if isinstance(value, list) else value["messages"]
    return found


def ids(answer: TrimAnswer) -> list[str]:
    """The stash ids of what is trimmed."""
    return [trim.stash_id for trim in answer.trimmed.trims]
