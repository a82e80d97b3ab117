"""Agents that move the provider's cache mark to their newest message at each call, which spells the one before anew."""

from __future__ import annotations

import json
from typing import Any

from tests.promises.engine import Engine
from tests.steps import steps

POLICY = {"age_keep_iterations": 1, "fit_keep_oldest": 0.0, "fit_residue_high": 0.02, "fit_residue_low": 0.01}
"""Iterations are dropped at most cuts, as in a long run."""


def _history(iterations: int) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Find the bug."}]}]
    for number in range(iterations):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"line {number} of it\n" * 12}
        sent += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return sent


def _marked(history: list[dict[str, Any]]) -> bytes:
    last = dict(history[-1])
    last["content"] = [{**last["content"][-1], "cache_control": {"type": "ephemeral"}}]
    return json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [*history[:-1], last]}).encode()


def _run(iterations: int) -> Engine:
    engine, history = Engine(limit=3_000, policy=POLICY), _history(iterations)
    for end in range(1, len(history) + 1, 2):
        engine.trim("anthropic_messages", _marked(history[:end]))
    return engine


def test_a_call_costs_what_is_new() -> None:
    """A call late in a run takes about the steps of an early one, although iterations were dropped before both."""
    taken = []
    for iterations in (100, 400):
        engine, body = _run(iterations), _marked(_history(iterations + 1))
        taken.append(steps(lambda: engine.trim("anthropic_messages", body), "engine/steps"))  # noqa: B023 - called at once

    assert taken[1] < 1.5 * taken[0]


def test_a_fresh_process_answers_the_same() -> None:
    """The bytes that come back are those of a process that has seen none of the calls before."""
    body = _marked(_history(121))
    answer = _run(120).trim("anthropic_messages", body)

    assert "dropped" in {trim.action.value for trim in answer.trimmed.trims}
    assert Engine(limit=3_000, policy=POLICY).trim("anthropic_messages", body).prompt.body == answer.prompt.body
