"""The guard behind the HTTP door: providers see masks, tools get values, what cannot be read stays here."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from prompt_sidecar.guard.options import GuardOptions
from tests.client.provider import Says
from tests.doors.http.agents import FORMATS, TOOL, Agent
from tests.doors.http.serving import proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import scripted

KEY = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
ENFORCE = GuardOptions(mode="enforce", restore=(f"{TOOL}:github_token",), scan_seconds=60)


def _uses_the_mask(body: Any) -> Says:
    text = json.dumps(body, ensure_ascii=False)
    found = re.search("⟦github_token:[a-z0-9]+⟧", text)
    assert found is not None
    mask = found[0]
    nested = json.dumps({"header": f'say "{mask}"'})
    return Says("", [("call-1", TOOL, {"token": f"a {mask} b", "body": nested}), ("call-2", "print", {"text": mask})])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream", [False, True])
def test_tools_get_values_that_no_provider_sees(format: str, stream: bool) -> None:
    """Those on the list; another tool gets the mask. The next prompt holds the same masks again."""
    with proxied(scripted(_uses_the_mask, Says("Done.")), guard=ENFORCE, window=100_000) as here:
        agent = Agent(format, stream, here.url, [{"role": "user", "content": f"Deploy with {KEY}."}])
        heard = agent.ask()
        held = json.dumps(agent.history[1:], ensure_ascii=False)
        arguments = [json.loads(each) for each in _arguments(agent.history)]
        agent.answer(heard, lambda _: "deployed")
        agent.ask()
        sent = b"".join(each.raw for each in here.upstream.sent)

    assert KEY in held
    assert f"a {KEY} b" == arguments[0]["token"]
    assert {"header": f'say "{KEY}"'} == json.loads(arguments[0]["body"])
    assert arguments[1]["text"].startswith("⟦github_token:")
    assert KEY.encode() not in sent
    assert [] == here.upstream.defects


def _arguments(history: list[Any]) -> list[str]:
    found = [call["function"]["arguments"] for entry in history for call in entry.get("tool_calls") or []]
    found += [entry["arguments"] for entry in history if entry.get("type") == "function_call"]
    blocks = [each for entry in history if isinstance(entry.get("content"), list) for each in entry["content"]]
    return found + [json.dumps(each["input"]) for each in blocks if each.get("type") == "tool_use"]


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
def test_what_the_guard_cannot_read_is_refused(path: str) -> None:
    """In the provider's shape, with a status that no SDK tries again; it is not sent on."""
    with proxied(scripted(), guard=ENFORCE) as here:
        status, answer, _ = asyncio.run(_post(f"{here.url}/v1/{path}", b"not JSON, and " + KEY.encode()))
        assert [] == here.upstream.sent

    assert 403 == status
    assert b"GUARD_UNREAD" in answer
    assert KEY.encode() not in answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_hidden_turn_of_a_history_that_the_provider_stores(*, stream: bool) -> None:
    """What is sent in it is masked as the request was."""
    own = Says("", [("own-1", "search_conversation_history", {"query": "x"})])
    tool = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}}
    first = {"model": "scripted", "stream": stream, "tools": [tool], "input": "Hello."}
    with proxied(scripted(Says("Hi."), own, Says("Done.")), guard=ENFORCE, window=100_000) as here:
        _, answer, _ = asyncio.run(_post(f"{here.url}/v1/responses", json.dumps(first).encode()))
        found = re.search(rb'"id": ?"(resp[^"]*)"', answer)
        assert found is not None
        then = first | {"previous_response_id": found[1].decode(), "input": f"Deploy with {KEY}."}
        status, _, _ = asyncio.run(_post(f"{here.url}/v1/responses", json.dumps(then).encode()))
        sent = [each.raw for each in here.upstream.sent]

    assert (200, 3) == (status, len(sent))
    assert KEY.encode() not in b"".join(sent)
    assert [True, True] == ["⟦github_token:".encode() in each for each in sent[1:]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_hidden_turn_that_is_refused_ends_the_answer(*, stream: bool) -> None:
    """In the provider's shape; a stream has begun, and ends as the provider would end it."""
    thought = {"type": "thinking", "thinking": "To DE89 3704 0044 0532 0130 00.", "signature": "c2ln"}
    own = Says("Wait.", [("own-1", "search_conversation_history", {"query": "x"})], blocks=[thought])
    tool = {"name": TOOL, "input_schema": {"type": "object", "properties": {}}}
    body = {"model": "scripted", "max_tokens": 9, "stream": stream, "tools": [tool]}
    body["messages"] = [{"role": "user", "content": f"Deploy with {KEY}."}]
    refuse = replace(ENFORCE, actions=("iban=refuse",))
    with proxied(scripted(own), guard=refuse, window=100_000) as here:
        status, answer, _ = asyncio.run(_post(f"{here.url}/v1/messages", json.dumps(body).encode()))

    assert (200 if stream else 400) == status
    assert b'"type":"invalid_request_error","message":"GUARD_REFUSED' in answer
    assert stream == (b"event: error" in answer)
    assert KEY.encode() not in answer
