"""What becomes of Bedrock's messages when they must fit: cache points that move, reasoning, results of JSON."""

from __future__ import annotations

import json
from typing import Any

from prompt_sidecar.trim.entries import Action
from tests.conformance.bedrock_converse import defects
from tests.promises.engine import Engine

FORMAT = "bedrock_converse"
LONG = "line of output\n" * 400
POINT = {"cachePoint": {"type": "default"}}
AROUND = {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]}}


def iterations(count: int) -> list[dict[str, Any]]:
    """A task and iterations of signed reasoning, a call with long input, and a long result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"text": "task"}]}]
    for number in range(count):
        reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": f"sig{number}"}}}
        use = {"toolUse": {"toolUseId": f"t{number}", "name": "f", "input": {"text": LONG}}}
        messages.append({"role": "assistant", "content": [reasoning, use]})
        result = {"toolResult": {"toolUseId": f"t{number}", "content": [{"json": {"rows": [LONG], "page": number}}]}}
        messages.append({"role": "user", "content": [result]})
    return messages


def test_a_cache_point_moves() -> None:
    """The decisions are the same wherever the agent puts its cache point, and it comes back where it was put."""
    engine, fixed = Engine(limit=8_000), Engine(limit=8_000)
    messages = iterations(6)
    for length in range(3, len(messages) + 1, 2):
        marked = json.loads(json.dumps(messages[:length]))
        marked[-1]["content"].append(POINT)
        answer = engine.trim(FORMAT, json.dumps(AROUND | {"messages": marked}).encode())
        plain = fixed.trim(FORMAT, json.dumps(AROUND | {"messages": messages[:length]}).encode())
        returned, wanted = json.loads(answer.prompt.body or b""), json.loads(plain.prompt.body or b"")
        assert [] == defects(returned)
        assert POINT == returned["messages"][-1]["content"].pop()
        assert wanted == returned
        assert list(plain.trimmed.trims) == list(answer.trimmed.trims)
    assert {Action.CLIPPED, Action.DROPPED} & {trim.action for trim in answer.trimmed.trims}


def test_reasoning_stays() -> None:
    """Reasoning next to clipped input is what it was."""
    messages = iterations(4)
    answer = Engine(limit=8_000).trim(FORMAT, json.dumps(AROUND | {"messages": messages}).encode())
    returned = json.loads(answer.prompt.body or b"")["messages"]
    before = [message["content"][0] for message in messages if message["role"] == "assistant"]
    after = [message["content"][0] for message in returned if message["role"] == "assistant"]
    assert before[-len(after) :] == after
    inputs = [message["content"][1]["toolUse"]["input"] for message in returned if message["role"] == "assistant"]
    assert inputs[0]["text"].startswith("[content clipped")


def test_results_of_json() -> None:
    """A result that is JSON stays JSON: what is left of it stands in an object; the whole can be fetched."""
    engine = Engine(limit=8_000)
    messages = iterations(4)
    answer = engine.trim(FORMAT, json.dumps(AROUND | {"messages": messages}).encode())
    returned = json.loads(answer.prompt.body or b"")["messages"]
    results = [block["toolResult"] for message in returned for block in message["content"] if "toolResult" in block]
    shown = [result["content"][0]["json"] for result in results]
    assert [["result"]] == [list(value) for value in shown if "rows" not in value][:1]
    originals = [engine.original(trim.stash_id) or b"" for trim in answer.trimmed.trims]
    assert {"rows": [LONG], "page": 0} in [json.loads(original) for original in originals]


def test_our_text_in_the_system_prompt() -> None:
    """Our text is a block of the system prompt, also where the body has none, and no message."""
    body = AROUND | {"messages": iterations(1)}
    answer = Engine(limit=100_000).trim(FORMAT, json.dumps(body).encode())
    returned = json.loads(answer.prompt.body or b"")
    assert body["messages"] == returned["messages"]
    assert [{"text": piece.text} for piece in answer.prompt.own_text] == returned["system"]
