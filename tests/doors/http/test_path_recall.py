"""Gemini's and Bedrock's models recall behind the door: calls of the sidecar's tools never reach the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.bedrock_converse import ENOUGH, NO_ANSWER, BedrockConverse
from prompt_sidecar.answers.gemini_contents import PLACEHOLDER, GeminiContents
from prompt_sidecar.answers.sse import Event
from tests.client.histories import FACT, result
from tests.client.provider import TOKENS, Says
from tests.conformance.converse_thinking import ConverseThinking
from tests.conformance.thought_signatures import ThoughtSignatures
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, PathAgent, PathUpstream, Way, hear, pieces, post
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_guarded import ENFORCE, KEY
from tests.doors.http.test_sdks import CALLS, OURS, Script
from tests.doors.http.upstream import scripted
from tests.oracle import data

EACH_WAY = pytest.mark.parametrize("name", [name for name in WAYS if name != "gemini-array"])
EACH_STREAM = pytest.mark.parametrize("name", ["gemini-sse", "bedrock-stream"])
BINDING = "anthropic.claude-opus-5-5-v1:0"
WINDOW = {"x-prompt-sidecar-context-window": "4500"}
THOUGHT = "I should look that up."
SEARCH = ("own-1", OURS[1], {"query": "x"})


def _upstream(here: Proxied, name: str, model: Callable[[Any], Says]) -> PathUpstream:
    made = PathUpstream(model, _way(name))
    made.provider = ConverseThinking(BINDING) if _is_bedrock(name) else ThoughtSignatures()
    here.upstream.other = made
    return made


def _way(name: str) -> Way:
    """Bedrock's with a model that binds its thinking."""
    way = WAYS[name]
    return replace(way, path=way.path.replace("maker.scripted-v1%3A0", quote(BINDING, safe="")))


def _is_bedrock(name: str) -> bool:
    return name.startswith("bedrock")


def _thinks(name: str) -> list[Any]:
    """Blocks by which a model thinks."""
    if _is_bedrock(name):
        return [{"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "s" * 300}}}]
    return [{"text": THOUGHT, "thought": True}]


def _agent(name: str, here: Proxied) -> PathAgent:
    agent = PathAgent(_way(name), here.url, headers=WINDOW)
    agent.add_user_text("Which build failed?")
    return agent


def _log_of(number: list[int]) -> Callable[[Any], str]:
    """Results of some 500 tokens each, with a fact of their own."""

    def answer(_: Any) -> str:
        number[0] += 1
        return result(number[0])

    return answer


@EACH_WAY
def test_sixty_calls_over_the_limit(name: str) -> None:
    """The upstream refuses nothing, thinking and signatures included, and the agent sees no call of the sidecar's."""
    script = Script()

    def model(body: Any) -> Says:
        says = script(body)
        return Says(says.text, says.calls, blocks=_thinks(name), tokens=says.tokens)

    with proxied(scripted()) as here:
        there = _upstream(here, name, model)
        agent, log_of = _agent(name, here), _log_of([0])
        while (heard := agent.turn(log_of)).calls:
            assert {TOOL} == {name for _, name, _ in heard.calls}
            assert "true" == heard.headers["x-prompt-sidecar-fits"]

    assert [] == there.defects
    assert "All builds were looked at." == heard.text
    held, last = json.dumps(agent.history), json.dumps(there.bodies[-1])
    assert not any(name in held for name in OURS)
    assert CALLS == script.calls
    assert script.turns == len(there.bodies) > CALLS + 10
    assert max(map(len, there.raw)) < 25_000 < len(held)
    assert 1 == len({json.dumps(body.get("tools") or body.get("toolConfig")) for body in there.bodies})
    assert any(name in last for name in OURS)
    assert any(FACT in text for body in there.bodies for text in own_results(body))


def own_results(body: Any) -> list[str]:
    """The texts that answer calls of the sidecar's tools."""
    parts = [part for entry in body.get("contents", []) for part in entry["parts"]]
    found = [part["functionResponse"] for part in parts if "functionResponse" in part]
    texts = [json.dumps(each["response"]) for each in found if each["name"] in OURS]
    blocks = [block for entry in body.get("messages", []) for block in entry["content"]]
    results = [block["toolResult"] for block in blocks if "toolResult" in block]
    return texts + [json.dumps(each["content"]) for each in results if each["toolUseId"].startswith("own-")]


@EACH_WAY
def test_usage_is_that_of_one_answer(name: str) -> None:
    """Input is the last turn's, output is summed."""
    with proxied(scripted()) as here:
        there = _upstream(here, name, scripted(Says("", [SEARCH]), Says("Done.")))
        heard = _agent(name, here).turn(str)

    usage = heard.usage
    if _is_bedrock(name):
        given, shown = usage["inputTokens"] + usage["cacheReadInputTokens"], usage["outputTokens"]
        assert TOKENS["input"] + 2 * TOKENS["output"] == usage["totalTokens"]
    else:
        given, shown = usage["promptTokenCount"], usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]
        assert TOKENS["input"] + 2 * TOKENS["output"] == usage["totalTokenCount"]
    assert (TOKENS["input"], 2 * TOKENS["output"]) == (given, shown)
    assert [] == there.defects


@EACH_WAY
def test_text_of_hidden_turns_is_shown_and_their_thinking_is_not(name: str) -> None:
    """Nor is a signature of it; the next request has all of it again, where it was."""
    first = Says("I look that up.", [SEARCH], blocks=_thinks(name))
    silent = Says("", [("own-2", OURS[1], {"query": "y"})], blocks=_thinks(name))
    with proxied(scripted()) as here:
        there = _upstream(here, name, scripted(first, silent, Says("Done."), Says("Bye.")))
        agent = _agent(name, here)
        heard = agent.turn(str)
        agent.add_user_text("Go on.")
        agent.turn(str)

    assert "I look that up.Done." == heard.text.replace("\n", "")
    held = json.dumps(agent.history)
    shows_before_text = int(name.endswith(("sse", "stream")))
    assert shows_before_text == held.count(THOUGHT)
    assert "thoughtSignature" not in held
    assert 2 == json.dumps(there.bodies[-1]).count(THOUGHT)
    assert 6 == len(there.bodies[2].get("contents") or there.bodies[2]["messages"]) + 1
    assert [] == there.defects


@EACH_WAY
def test_of_a_mixed_turn_the_agent_gets_its_own_calls(name: str) -> None:
    """The sidecar's are answered beside its results; the call that was signed comes back signed."""
    both = Says("Both.", [SEARCH, ("call-1", TOOL, {"number": 1}), ("call-2", TOOL, {"number": 2})])
    with proxied(scripted()) as here:
        there = _upstream(here, name, scripted(both, Says("Done.")))
        agent = _agent(name, here)
        heard = agent.turn(str)
        assert "Done." == agent.turn(str).text

    assert [{"number": 1}, {"number": 2}] == [arguments for _, _, arguments in heard.calls]
    assert [] == there.defects
    assert 1 == len(own_results(there.bodies[1]))
    if not _is_bedrock(name):
        assert 1 == json.dumps(agent.history).count(PLACEHOLDER)
        assert PLACEHOLDER not in json.dumps(there.bodies[1])


@EACH_WAY
def test_a_model_in_a_loop_is_stopped(name: str) -> None:
    """After six hidden turns it has to answer without tools, and then does."""

    def model(body: Any) -> Says:
        text = json.dumps(body)
        forbidden = ENOUGH in text or '"NONE"' in text
        return Says("Enough.") if forbidden else Says("", [(f"own-{len(text)}", OURS[1], {"query": "x"})])

    with proxied(scripted()) as here:
        there = _upstream(here, name, model)
        agent = _agent(name, here)
        assert "Enough." == agent.turn(str).text
        assert 7 == len(there.bodies)
        agent.add_user_text("Go on.")
        agent.turn(str)

    assert [] == there.defects


@EACH_WAY
def test_a_model_that_does_not_stop_is_not_heard(name: str) -> None:
    """What it calls in spite of that is nobody's; the agent has an answer that it can send back."""

    def model(body: Any) -> Says:
        text = json.dumps(body)
        return Says("Bye.") if "Go on." in text else Says("", [(f"own-{len(text)}", OURS[1], {"query": "x"})])

    with proxied(scripted()) as here:
        there = _upstream(here, name, model)
        agent = _agent(name, here)
        heard = agent.turn(str)
        assert 7 == len(there.bodies)
        if not heard.entries:
            agent.history.pop()
        agent.add_user_text("Go on.")
        assert "Bye." == agent.turn(str).text

    assert (NO_ANSWER if _is_bedrock(name) else "") == heard.text
    assert [] == heard.calls
    assert [] == there.defects


@EACH_STREAM
def test_an_error_in_a_hidden_turn_ends_the_stream_as_the_provider_would(name: str) -> None:
    """As an event or a frame that an SDK raises an error of its own for."""
    with proxied(scripted()) as here:
        _upstream(here, name, scripted(Says("A moment.", [SEARCH]), Says("overloaded", status=503)))
        agent = _agent(name, here)
        status, body, _ = agent.ask()

    assert 200 == status
    if _is_bedrock(name):
        assert body.endswith(body[body.index(b":exception-type") - 50 :])
        assert b"serviceUnavailableException" in body
        assert b":message-type\x07\x00\x09exception" in body
        assert b'{"message":"overloaded"}' in body
    else:
        last = body.replace(b"\r\n", b"\n").strip().rpartition(b"\n\n")[2]
        assert last.startswith(b'data: {"error":{"code":503,"message":"overloaded"')


@EACH_WAY
def test_hidden_turns_that_are_lost_leave_a_valid_history(name: str) -> None:
    """A new sidecar goes on without them: thinking that was bound to them goes, and calls have their signatures."""
    history: list[Any] = []
    provider = ConverseThinking(BINDING) if _is_bedrock(name) else ThoughtSignatures()
    alone = Says("I look that up.", [SEARCH], blocks=_thinks(name))
    both = Says("Both.", [SEARCH, ("call-1", TOOL, {"number": 1})], blocks=_thinks(name))
    call = Says("Next.", [("call-2", TOOL, {"number": 2})], blocks=_thinks(name))
    for script in ([alone, call, both], [Says("Done.")]):
        with proxied(scripted()) as here:
            there = _upstream(here, name, scripted(*script))
            there.provider = provider
            agent = PathAgent(_way(name), here.url, history, headers=WINDOW)
            if not history:
                agent.add_user_text("Which build failed?")
                agent.turn(str)
            heard = agent.turn(str)
        assert [] == there.defects

    assert "Done." == heard.text
    if not _is_bedrock(name):
        assert {PLACEHOLDER} == {
            part["thoughtSignature"]
            for part in there.bodies[0]["contents"][-2]["parts"]
            if "functionCall" in part and "thoughtSignature" in part
        }


@EACH_WAY
@pytest.mark.parametrize("free", [True, False])
def test_the_tools_join_behind_the_agents(name: str, free: bool) -> None:
    """In the same place; not where a call of any tool is wanted of Bedrock's, which takes no list of some."""
    choices: Mapping[bool, Any] = {True: {"toolChoice": {"auto": {}}}, False: {"toolChoice": {"any": {}}}}
    if not _is_bedrock(name):
        choices = {free: {"functionCallingConfig": {"mode": "AUTO" if free else "ANY"}} for free in (True, False)}
    with proxied(scripted()) as here:
        there = _upstream(here, name, scripted(Says("Done.")))
        agent = _agent(name, here)
        agent.choice = choices[free]
        agent.turn(str)

    (body,) = there.bodies
    if _is_bedrock(name):
        names = [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]]
    else:
        assert 1 == len(body["tools"])
        names = [each["name"] for each in body["tools"][0]["functionDeclarations"]]
    assert TOOL == names[0]
    assert (free or not _is_bedrock(name)) == (len(names) > 1)


@EACH_STREAM
def test_values_are_restored_in_a_stream_with_hidden_turns(name: str) -> None:
    """Also in the pieces of a call whose index is another one for the agent."""

    def uses_the_mask(body: Any) -> Says:
        text = json.dumps(body, ensure_ascii=False)
        begin = text.index("⟦github_token:")
        mask = text[begin : text.index("⟧", begin) + 1]
        return Says("", [("own-2", OURS[1], {"query": mask}), ("call-1", TOOL, {"token": f"a {mask} b"})])

    with proxied(scripted(), guard=ENFORCE, window=100_000) as here:
        there = _upstream(here, name, scripted(Says("Wait.", [SEARCH]), uses_the_mask, Says("Done.")))
        agent = PathAgent(_way(name), here.url, headers=WINDOW)
        agent.add_user_text(f"Deploy with {KEY}.")
        heard = agent.turn(str)
        agent.turn(str)

    assert [{"token": f"a {KEY} b"}] == [arguments for _, _, arguments in heard.calls]
    assert KEY.encode() not in b"".join(there.raw)
    assert [] == there.defects


def _filtered(dialect: Dialect, turns: list[bytes], step: int) -> tuple[bytes, list[Any]]:
    """What the agent gets of streams that come in pieces of so many bytes, and what the model said."""
    kept = dialect.filter(OURS, None)
    out, texts = [], []
    for stream in turns:
        kept.begin()
        splitter = dialect.splitter(1 << 20)
        for at in range(0, len(stream), step):
            out += [kept.feed(event) for event in splitter.feed(stream[at : at + step])]
        out += [kept.feed(event) for event in splitter.last()]
        out.append(kept.rest())
        turn = kept.turn()
        texts.append((turn.entries, turn.own, turn.hidden, turn.mixed, turn.usage))
    return b"".join(out), [texts, kept.visible()]


@EACH_STREAM
def test_pieces_may_end_at_any_byte(name: str) -> None:
    """What the agent gets, and what is kept, does not depend on how a stream is cut."""
    dialect: Dialect = BedrockConverse() if _is_bedrock(name) else GeminiContents()
    call = ("call-1", TOOL, {"text": "⟦ä" * 9})
    turns = [
        Says("Ich sehe nach: äöü.", [SEARCH], blocks=_thinks(name)),
        Says("", [SEARCH, call], blocks=_thinks(name)),
    ]
    streams = [b"".join(pieces(WAYS[name], each)) for each in turns]
    whole = _filtered(dialect, streams, 1 << 20)

    assert all(whole == _filtered(dialect, streams, step) for step in (1, 2, 3, 7, 64))
    assert call[2] in [arguments for _, _, arguments in hear(WAYS[name], whole[0], {}).calls]


@EACH_STREAM
def test_a_stream_without_calls_of_the_sidecars_goes_on_byte_for_byte(name: str) -> None:
    """With thinking, signatures and comments in it."""
    dialect: Dialect = BedrockConverse() if _is_bedrock(name) else GeminiContents()
    blocks = _thinks(name)
    if not _is_bedrock(name):
        blocks = [*blocks, {"text": "a", "thoughtSignature": "c2ln"}, {"text": "b"}]
    stream = b"".join(pieces(WAYS[name], Says("Two words.", [("c", TOOL, {})], blocks=blocks)))
    if not _is_bedrock(name):
        stream = b": a comment\r\n\r\n" + stream + b"data: not JSON\n\n"

    assert stream == _filtered(dialect, [stream], 5)[0]


def test_a_signature_waits_until_its_turn_is_known() -> None:
    """A hidden turn's text flows without it; nothing that stands before it waits."""
    dialect = GeminiContents()
    kept = dialect.filter(OURS, None)
    kept.begin()

    def piece(*parts: Any, **more: Any) -> bytes:
        return kept.feed(
            Event(b"raw", "", json.dumps({"candidates": [{"content": {"parts": parts}, **more}]}).encode())
        )

    assert b"raw" == piece({"text": "a"})
    assert b"" == piece({"text": "b", "thoughtSignature": "c2ln"})
    assert b"" == piece({"text": "c"})
    assert b"" == piece({"functionCall": {"name": OURS[0], "args": {"id": "x"}}})
    last = piece({"text": ""}, finishReason="STOP")
    assert b'data: {"candidates":[{"content":{"parts":[{"text":"b"}]}}]}\n\n' == last.split(b"\n\n")[0] + b"\n\n"
    assert b"c2ln" not in last
    assert b"STOP" not in last
    assert kept.turn().hidden


def test_functions_join_those_of_the_agents_last_tool() -> None:
    """Models that see one tool see them all; other tools keep their places and bytes."""
    search: Any = {"googleSearch": {}}
    other: Any = {"codeExecution": {}}
    one, two = ({"function_declarations": [{"name": each}]} for each in ("a", "b"))
    for tools, at in (([one, search], 0), ([search, one, two, other], 2)):
        body = {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "tools": tools}
        with proxied(scripted()) as here:
            there = _upstream(here, "gemini", scripted(Says("Done.")))
            asyncio.run(post(here.url + WAYS["gemini"].path, json.dumps(body).encode()))
        given = there.bodies[0]["tools"]
        assert [*tools[:at], *tools[at + 1 :]] == [*given[:at], *given[at + 1 :]]
        names = [each["name"] for each in given[at]["function_declarations"]]
        assert OURS[0] in names[1:]


@pytest.mark.parametrize(
    ("why", "more"),
    [
        ("unreadable", {"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}}),
        ("several_answers", {"generationConfig": {"candidateCount": 2}}),
        ("no_tools", {"tools": [{"googleSearch": {}}]}),
        ("no_tools", {"tools": {"functionDeclarations": [{"name": "a"}]}}),
    ],
)
def test_gemini_requests_that_leave_no_choice_are_offered_nothing(why: str, more: Any) -> None:
    """Nor are those whose tools are not functions; a header says why."""
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "tools": [{"functionDeclarations": [{"name": "a"}]}],
    }
    body |= more
    with proxied(scripted()) as here:
        there = _upstream(here, "gemini", scripted(Says("Done.")))
        status, _, headers = asyncio.run(post(here.url + WAYS["gemini"].path, json.dumps(body).encode()))

    assert (200, why) == (status, headers["x-prompt-sidecar-recall"])
    assert body.get("toolConfig") == there.bodies[0].get("toolConfig")
    assert not any(name in json.dumps(there.bodies) for name in OURS)


CHOICES: Any = {
    "validated": {"functionCallingConfig": {"mode": "VALIDATED"}},
    "allowed": {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": [TOOL]}},
    "snake": {"function_calling_config": {"allowed_function_names": [TOOL], "mode": "validated"}},
    "automatic": {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {"languageCode": "en"}},
}
"""In which the model may answer with text, or call."""
VERTEX = "/v1/projects/p/locations/l/publishers/google/models/scripted:"


def _allowed(choice: Any) -> Any:
    calling = choice.get("functionCallingConfig") or choice["function_calling_config"]
    return calling.get("allowedFunctionNames") or calling.get("allowed_function_names")


@pytest.mark.parametrize("name", ["gemini", "gemini-sse"])
@pytest.mark.parametrize("vertex", [False, True])
@pytest.mark.parametrize("choice", CHOICES)
def test_gemini_recalls_where_calls_are_validated(name: str, choice: str, *, vertex: bool) -> None:
    """A hidden turn is answered; the mode stays, and the sidecar's functions are among those that are allowed."""
    way = WAYS[name]
    if vertex:
        way = replace(way, path=VERTEX + way.path.rpartition(":")[2])
    alone = Says("", [SEARCH])
    with proxied(scripted()) as here:
        here.upstream.other = there = PathUpstream(scripted(alone, Says("Build 7.")), way)
        agent = PathAgent(way, here.url, headers=WINDOW)
        agent.add_user_text("Which build failed?")
        agent.choice = CHOICES[choice]
        heard = agent.turn(str)

    assert ("Build 7.", "offered") == (heard.text, heard.headers["x-prompt-sidecar-recall"])
    assert [] == there.defects
    first, second = (body["toolConfig"] for body in there.bodies)
    assert first == second
    expected = json.loads(json.dumps(CHOICES[choice]))
    if (names := _allowed(expected)) is not None:
        names += (*OURS, "create_tasks", "update_task")
    assert expected == first


@pytest.mark.parametrize("choice", ["validated", "allowed"])
def test_a_model_in_a_loop_is_stopped_where_calls_are_validated(choice: str) -> None:
    """No function is allowed by name then, as that goes with other modes alone."""

    def model(body: Any) -> Says:
        forbidden = {"functionCallingConfig": {"mode": "NONE"}} == body["toolConfig"]
        return Says("Enough.") if forbidden else Says("", [(f"own-{len(str(body))}", OURS[1], {"query": "x"})])

    with proxied(scripted()) as here:
        there = _upstream(here, "gemini-sse", model)
        agent = _agent("gemini-sse", here)
        agent.choice = CHOICES[choice]
        assert "Enough." == agent.turn(str).text

    assert [] == there.defects


def test_an_agents_function_of_the_same_name_stays_its_own() -> None:
    """It is allowed once, and of the sidecar's the others are."""
    allowed = {"mode": "VALIDATED", "allowedFunctionNames": [OURS[0]]}
    body = {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "tools": [{"functionDeclarations": [{"name": OURS[0]}]}],
        "toolConfig": {"functionCallingConfig": allowed},
    }
    with proxied(scripted()) as here:
        there = _upstream(here, "gemini", scripted(Says("Done.")))
        asyncio.run(post(here.url + WAYS["gemini"].path, json.dumps(body).encode()))

    names = there.bodies[0]["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"]
    assert [*OURS, "create_tasks", "update_task"] == names


def test_a_call_that_is_forced_later_stays_the_agents() -> None:
    """The run has the sidecar's functions by then; they are not among those that the agent forces."""
    with proxied(scripted()) as here:
        there = _upstream(here, "gemini", scripted(Says("Hello."), Says("", [("call-1", TOOL, {"number": 1})])))
        agent = _agent("gemini", here)
        agent.turn(str)
        agent.add_user_text("Read it.")
        agent.choice = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [TOOL]}}
        heard = agent.turn(str)

    assert "offered" == heard.headers["x-prompt-sidecar-recall"]
    assert agent.choice == there.bodies[1]["toolConfig"]


def test_recorded_first_choices_of_gemini() -> None:
    """The choices with which recorded clients got no recall, in silence."""
    asked = json.loads(data.need("failing/forced_first_choice.json").read_text())["first_request_tool_choice"]
    validated = [each for each in asked if "VALIDATED" in each]
    assert validated
    for each in validated:
        choice = CHOICES["allowed" if "allowed_function_names" in each else "validated"]
        with proxied(scripted()) as here:
            _upstream(here, "gemini", scripted(Says("Done.")))
            agent = _agent("gemini", here)
            agent.choice = choice
            assert "offered" == agent.turn(str).headers["x-prompt-sidecar-recall"]
