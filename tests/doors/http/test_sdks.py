"""Agents on the providers' own SDKs work through the door: trimmed, recalling, streamed or not, by a base URL alone."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from prompt_sidecar.facts.limits import RecallLimits
from tests.client.histories import FACT, STEPS, result
from tests.client.provider import TOKENS, Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.agents import FORMATS, TOOL, Agent, log_of
from tests.doors.http.serving import proxied
from tests.doors.http.upstream import scripted
from tests.oracle.data import need

CALLS = 60
OURS = ("recall_elided_content", "search_conversation_history")
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EACH_FORMAT = pytest.mark.parametrize("format", FORMATS)
EACH_FORMAT_ONCE = pytest.mark.parametrize(
    ("format", "stream"), [(format, number % 2 == 1) for number, format in enumerate(FORMATS)]
)
"""In turns streamed and not, for tests that take seconds."""


@dataclass
class Script:
    """A model that calls the agent's tool, and now and then the sidecar's: alone, twice in a row, or beside its own."""

    turns: int = 0
    calls: int = 0
    recalled: list[str] = field(default_factory=list)

    def __call__(self, body: Any) -> Says:
        """Answer, and say that the prompt took about as many tokens as it has."""
        text = json.dumps(body)
        return replace(self._answer(text), tokens={"input": len(text) // 4, "cached": 0, "output": 20})

    def _answer(self, text: str) -> Says:
        self.turns += 1
        if self.calls >= CALLS:
            return Says("All builds were looked at.")
        label = text.split("id=", 2)[1][:10] if "— id=" in text or "\\u2014 id=" in text else ""
        own = (f"own-{self.turns}", OURS[0], {"id": label})
        if label and self.turns % 9 == 0:
            return Says("I look that up.", [own])
        if label and self.turns % 9 == 1:
            return Says("", [(f"own-{self.turns}", OURS[1], {"query": "build number"})])
        self.calls += 1
        theirs: tuple[str, str, dict[str, Any]] = (f"call-{self.calls}", TOOL, {})
        if label and self.turns % 9 == 5:
            return Says("Both.", [own, theirs])
        return Says(f"Step {self.calls}.", [theirs])


@EACH_FORMAT
@STREAMED
def test_sixty_calls_over_the_limit(format: str, stream: bool) -> None:
    """The upstream refuses nothing, no prompt is too long, and the agent never sees a call of the sidecar's tools."""
    script = Script()
    with proxied(script) as here:
        agent = Agent(format, stream, here.url, [{"role": "user", "content": "Which build failed?"}])
        while (heard := agent.ask()).calls:
            assert {TOOL} == {name for _, name in heard.calls}
            agent.answer(heard, log_of)
            if heard.headers:
                assert "true" == heard.headers["x-prompt-sidecar-fits"]

    assert [] == here.upstream.defects
    assert "All builds were looked at." == heard.text
    held = json.dumps(agent.history)
    assert not any(name in held for name in OURS)
    assert "own-" not in held
    last = json.dumps(here.upstream.bodies[-1])
    assert CALLS == script.calls
    assert script.turns == len(here.upstream.sent) > CALLS + 10
    assert max(len(each.raw) for each in here.upstream.sent) < 25_000 < len(held)
    assert 1 == len({json.dumps(body["tools"]) for body in here.upstream.bodies})
    assert "own-" in last
    answers = [text for body in here.upstream.bodies for text in _answers(body, "own-")]
    assert any(FACT in text for text in answers)


def additional_tools(*tools: dict[str, Any], **members: Any) -> dict[str, Any]:
    """An item that offers tools, as Codex's default model has it."""
    return {"type": "additional_tools", **members, "tools": list(tools)}


FUNCTION = {"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {}}}


def posted(url: str, body: Any) -> Mapping[str, str]:
    """Send a request of responses; the headers of its answer."""
    request = urllib.request.Request(
        f"{url}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answered:
        headers: Mapping[str, str] = answered.headers
        return headers


@pytest.mark.parametrize(
    ("members", "stream"), [({}, False), ({"role": "developer"}, True)], ids=["bare", "with a role"]
)
def test_sixty_calls_with_tools_in_an_item(members: dict[str, Any], stream: bool) -> None:
    """The sidecar's tools join those in the item, in the same bytes at each call, and calls of them are answered."""
    script = Script()
    item = additional_tools(FUNCTION, **members)
    history = [item, {"role": "user", "content": "Which build failed?"}]
    with proxied(script) as here:
        agent = Agent("openai_responses", stream, here.url, history, tools=False)
        while (heard := agent.ask()).calls:
            assert {TOOL} == {name for _, name in heard.calls}
            agent.answer(heard, log_of)

    assert [] == here.upstream.defects
    assert CALLS == script.calls
    assert item == agent.history[0]
    assert not any(name in json.dumps(agent.history) for name in OURS)
    first = {each.raw.split(b'{"role":"user"')[0].split(b"additional_tools")[1] for each in here.upstream.sent}
    assert 1 == len(first)
    for body in here.upstream.bodies:
        offering = [each for each in body["input"] if each.get("type") == "additional_tools"]
        assert [[TOOL, *OURS]] == [[tool["name"] for tool in each["tools"][:3]] for each in offering]
        assert "tools" not in body
    answers = [text for body in here.upstream.bodies for text in _answers(body, "own-")]
    assert any(FACT in text for text in answers)


@pytest.mark.parametrize(
    ("tools", "more", "offered"),
    [
        ([FUNCTION], {"store": False}, "offered"),
        ([FUNCTION], {"store": False, "tools": []}, "offered"),
        ([], {"store": False}, "no_tools"),
        ([FUNCTION], {}, "no_tools"),
        ([FUNCTION], {"store": True}, "no_tools"),
        ([FUNCTION], {"store": False, "tool_choice": "required"}, "forced"),
    ],
)
def test_which_items_the_tools_join(tools: list[Any], more: dict[str, Any], offered: str) -> None:
    """One with tools, whose history the client keeps; others go on as they came."""
    item = additional_tools(*tools)
    sent = {"model": "made-up", "input": [item, {"role": "user", "content": "Go."}], **more}
    with proxied(scripted(Says("Done."))) as here:
        answered = posted(here.url, sent)

    assert offered == answered["x-prompt-sidecar-recall"]
    assert (offered == "offered") == (item not in here.upstream.bodies[0]["input"])
    assert [] == here.upstream.defects


def test_tools_beside_an_item() -> None:
    """Where there are both, the sidecar's join the others, and none whose name a tool of the agent's has anywhere."""
    named = {"type": "function", "name": OURS[0], "parameters": {"type": "object"}}
    item = additional_tools({"type": "namespace", "name": "n", "description": "d", "tools": [named]})
    sent = {"store": False, "tools": [FUNCTION], "input": [item, {"role": "user", "content": "Go."}]}
    with proxied(scripted(Says("Done."))) as here:
        posted(here.url, {"model": "made-up", **sent})

    body = here.upstream.bodies[0]
    names = [tool["name"] for tool in body["tools"]]
    assert (item, TOOL, OURS[1]) == (body["input"][0], *names[:2])
    assert OURS[0] not in names


def test_a_recorded_item_with_tools() -> None:
    """A request that was offered nothing."""
    found = json.loads(need("failing/codex_additional_tools.json").read_text())
    with proxied(scripted(Says("Done."))) as here:
        answered = posted(here.url, found["body"])

    assert "offered" == answered["x-prompt-sidecar-recall"]
    assert set(OURS) <= {tool["name"] for tool in here.upstream.bodies[0]["input"][0]["tools"]}


def _answers(body: Any, prefix: str) -> list[str]:
    """The texts that answer calls with an id that begins so."""
    found = []
    for message in body.get("messages") or body["input"]:
        if str(message.get("tool_call_id") or message.get("call_id")).startswith(prefix):
            found.append(str(message.get("content") or message.get("output")))
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        found += [str(block["content"]) for block in blocks if str(block.get("tool_use_id")).startswith(prefix)]
    return found


@EACH_FORMAT
@STREAMED
def test_usage_is_that_of_one_answer(format: str, stream: bool) -> None:
    """Input is the last turn's, output is summed."""
    own = Says("", [("own-1", OURS[1], {"query": "x"})])
    with proxied(scripted(own, Says("Done."))) as here:
        heard = Agent(format, stream, here.url, [{"role": "user", "content": "Go."}]).ask()

    usage = heard.usage.to_dict()
    output = usage.get("output_tokens", usage.get("completion_tokens"))
    assert 2 * TOKENS["output"] == output
    given = usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    assert TOKENS["input"] == given
    assert [] == here.upstream.defects


@EACH_FORMAT
@STREAMED
def test_a_model_in_a_loop_is_stopped(format: str, stream: bool) -> None:
    """After six hidden turns the model has to answer without tools."""

    def model(body: Any) -> Says:
        forbidden = body.get("tool_choice") in ("none", {"type": "none"})
        own = f"own-{len(json.dumps(body))}"
        return Says("Enough.") if forbidden else Says("", [(own, OURS[1], {"query": "x"})])

    with proxied(model) as here:
        heard = Agent(format, stream, here.url, [{"role": "user", "content": "Go."}]).ask()

    assert "Enough." == heard.text
    assert 7 == len(here.upstream.sent)


@EACH_FORMAT
@STREAMED
def test_a_refusal_as_too_long_is_learned_from(format: str, stream: bool) -> None:
    """The prompt is trimmed to the limit that the provider names, and sent again."""
    refusal = Says("prompt is too long: 5000 tokens > 3000 maximum", status=400)
    with proxied(scripted(refusal, Says("Done.")), window=100_000) as here:
        agent = Agent(format, stream, here.url, [{"role": "user", "content": "Go."}])
        agent.history += [each for number in range(1, 12) for each in STEPS[format](number)]
        assert "Done." == agent.ask().text
        first, second = here.upstream.sent

    assert len(second.raw) < len(first.raw)
    assert [] == here.upstream.defects


@EACH_FORMAT
def test_a_refusal_reaches_the_agent_as_the_provider_gave_it(format: str) -> None:
    """Status, body and headers of an error that the sidecar cannot mend."""
    with proxied(scripted(Says("no such model", status=404))) as here:
        agent = Agent(format, False, here.url, [{"role": "user", "content": "Go."}])
        with pytest.raises(Exception, match="no such model") as caught:
            agent.ask()

    assert 404 == caught.value.status_code  # type: ignore[attr-defined]


@EACH_FORMAT
def test_an_error_in_a_hidden_turn_ends_the_stream_as_the_provider_would(format: str) -> None:
    """The agent's SDK raises its own error for it."""
    own = Says("A moment.", [("own-1", OURS[1], {"query": "x"})])
    with proxied(scripted(own, Says("overloaded", status=529))) as here:
        agent = Agent(format, True, here.url, [{"role": "user", "content": "Go."}])
        with pytest.raises(Exception, match="overloaded"):
            agent.ask()


def _holds(text: str, number: int) -> bool:
    return json.dumps(result(number))[1:-1] in text


@EACH_FORMAT_ONCE
def test_what_left_the_prompt_is_recalled_however_often(format: str, stream: bool) -> None:
    """At each tenth of sixty calls the model gets the same result again, where the prompt before does not hold it."""
    shown: list[str] = []
    calls, known = 0, ""

    def model(body: Any) -> Says:
        nonlocal calls, known
        text = json.dumps(body)
        known = known or (text.split("\\u2014 id=", 1)[1][:10] if "\\u2014 id=" in text else "")
        if calls % 10 == 5 and calls > 10 and len(shown) < 2 * (calls // 10):
            shown.append(text)
            return Says("", [(f"own-{calls}-{len(shown)}", OURS[0], {"id": known})])
        calls += 1
        return Says("Done.") if calls > CALLS else Says(f"Step {calls}.", [(f"call-{calls}", TOOL, {})])

    with proxied(model) as here:
        agent = Agent(format, stream, here.url, [{"role": "user", "content": "Which build failed?"}])
        while (heard := agent.ask()).calls:
            agent.answer(heard, log_of)

    assert [] == here.upstream.defects
    before, after = shown[:2]
    recalled = next(number for number in range(1, CALLS) if _holds(after, number) and not _holds(before, number))
    held = [_holds(text, recalled) for text in shown]
    assert [True] * 5 == held[1::2]
    assert held[::2].count(False) > RecallLimits().repeats
