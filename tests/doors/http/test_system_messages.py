"""Agents that put system messages into the history work behind the door: the provider refuses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.client.provider import Says
from tests.conformance.anthropic_messages import worsened
from tests.doors.http.serving import proxied
from tests.doors.http.test_gateways import post
from tests.engine.steps.test_system_messages import BOUND, REMINDER, UNBOUND, body, history, prompts
from tests.oracle import data


def proxied_run(messages: Sequence[dict[str, Any]], model: str, window: int, says: Says) -> list[list[str]]:
    """Send a run turn by turn through a door to a strict provider; what each of its prompts has against it."""
    found: list[list[str]] = []
    with proxied(lambda _: says, window=window) as here:
        for length in prompts(messages):
            sent = body(messages[:length], model) | {"tools": [{"name": "read", "input_schema": {"type": "object"}}]}
            headers = {"x-prompt-sidecar-context-window": str(window), "x-api-key": "secret-key"}
            status, answer = post(here.url + "/v1/messages", sent, **headers)
            assert 200 == status, answer
            found.append([*here.upstream.defects, *worsened(sent, here.upstream.bodies[-1])])
        assert len(here.upstream.sent) >= len(prompts(messages))
        assert len(here.upstream.sent[-1].raw) < len(json.dumps(body(messages, model)))
    return found


@pytest.mark.parametrize("model", [UNBOUND, BOUND])
def test_reminders_now_and_then(model: str) -> None:
    """No two stand in a row that were not sent so, and each is where its provider takes it."""
    run = history(*([REMINDER] if number % 3 == 2 else [] for number in range(24)), task=[REMINDER])
    assert [[]] * 25 == proxied_run(run, model, 6_000, Says("Done."))


@pytest.mark.parametrize("model", [UNBOUND, BOUND])
def test_a_coding_agents_run(model: str) -> None:
    """A run that failed before: reminders gathered to seven in a row."""
    found = json.loads(data.need("failing/claude_code_system_in_a_row.json").read_text())
    messages, window = found["body"]["messages"], found["context_window"]
    assert [[]] * len(prompts(messages)) == proxied_run(messages, model, window, Says("Done."))


def test_a_compaction_trigger() -> None:
    """The item that the provider takes at the end only arrives there."""
    made = [{"role": "user", "content": "Find the bug."}]
    for number in range(12):
        made += [
            {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": f"word{number} " * 400},
        ]
    tools = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
    sent = {"model": "gpt-5.4", "store": False, "tools": tools, "input": [*made, {"type": "compaction_trigger"}]}
    with proxied(lambda _: Says("Done."), window=3_000) as here:
        headers = {"x-prompt-sidecar-context-window": "3000", "authorization": "Bearer secret-key"}
        status, answer = post(here.url + "/v1/responses", sent, **headers)
        assert 200 == status, answer
        assert [] == here.upstream.defects
        assert {"type": "compaction_trigger"} == here.upstream.bodies[-1]["input"][-1]
        assert len(here.upstream.sent[-1].raw) < len(json.dumps(sent))
