"""A run that began under rules before 9 keeps them to its end, in any process that goes on with it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.revision import RULES, seal, unseal
from tests.promises.engine import KEY, Engine

LIMIT = 8_000
BEGUN = 3
"""Iterations of the run when its revision was made; nothing was cut by then."""


def history(iterations: int) -> list[dict[str, Any]]:
    """A task, and calls whose results are small and large in turn."""
    made: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for number in range(iterations):
        function = {"name": "bash", "arguments": json.dumps({"command": f"run {number}"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        text = f"value {number} of it, " * (6 if number % 2 else 150)
        made += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": text},
        ]
    return made


def body(iterations: int) -> bytes:
    """The body of a prompt."""
    return json.dumps({"model": "gpt-4.1", "messages": history(iterations)}).encode()


def clipped_small(answer: TrimAnswer) -> int:
    """How many small results of the prompt are labels."""
    messages = json.loads(answer.prompt.body or b"")["messages"]
    small = {f"c{number}": "clipped" in each["content"] for number, each in _results(messages) if number % 2}
    return sum(small.values())


def _results(messages: list[Any]) -> list[tuple[int, Any]]:
    return [(int(each["tool_call_id"][1:]), each) for each in messages if each["role"] == "tool"]


def test_small_results_are_clipped_where_they_were() -> None:
    """A new run leaves them whole; one of earlier rules clips them, in a process that goes on with it too."""
    policy = {"fit_residue_high": 0.3, "fit_keep_oldest": 0.0}
    first = Engine(limit=LIMIT, policy=policy).trim("openai_chat", body(BEGUN))
    opened = unseal(KEY, first.prompt.revision)
    assert opened is not None
    assert RULES == opened.began_under
    before = seal(KEY, msgspec.structs.replace(opened, began_under=8, version=8))
    for revision, earlier in ((first.prompt.revision, False), (before, True)):
        engine = Engine(limit=LIMIT, policy=policy)
        answer = engine.trim("openai_chat", body(BEGUN), revision=revision)
        for iterations in range(BEGUN + 1, 24):
            answer = engine.trim("openai_chat", body(iterations))
        assert answer.trimmed.cuts
        assert earlier == (clipped_small(answer) > 0)
        fresh = Engine(limit=LIMIT, policy=policy).trim("openai_chat", body(23), revision=answer.prompt.revision)
        assert fresh.prompt.body == answer.prompt.body
        assert unseal(KEY, fresh.prompt.revision) is not None
