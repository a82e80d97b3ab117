"""Which call a result answers, where ids are missing or used again: what the registry says of it follows from that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.prompt.items import pairing_id
from tests.engine.runs.making import OPENAI_CHAT, ROOM, Engine, body, result_text

LIMIT = 6_000


def turn(number: int, ids: tuple[str, str], paths: tuple[str, str]) -> list[Any]:
    """Two calls of one tool at once, and their results in order."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}
        for call_id, path in zip(ids, paths, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": f"{path}\n{result_text(number)}"}
        for call_id, path in zip(ids, paths, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("one", "two")])
def test_the_registry_tells_each_results_own_arguments(ids: tuple[str, str]) -> None:
    """Results are paired with the calls of their block in order, so none shows the arguments of another."""
    messages: list[Any] = [{"role": "user", "content": "Find the bug."}]
    for number in range(6):
        messages += turn(number, ids, (f"left_{number}", f"right_{number}"))
    engine = Engine(limit=LIMIT, policy=ROOM | {"registry_share": 0.02})
    answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages))
    entries = [entry for entry in answer.trimmed.stash_entries if entry.kind == "result"]
    assert entries
    for entry in entries:
        original = engine.original(entry.stash_id) or b""
        assert original.decode().split("\n")[0] in entry.arguments


def test_a_call_without_an_id_is_paired_by_name() -> None:
    """What stands in place of an id is the tool's name; an id is itself."""
    assert ("c1", "name:read", "name:") == (pairing_id("c1", "read"), pairing_id("", "read"), pairing_id("", ""))
