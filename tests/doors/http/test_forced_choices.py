"""Runs whose requests force a call: the sidecar's tools join in the same bytes, and do not change what is called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from aiohttp import web

from tests.client.provider import Says
from tests.doors.http.agents import TOOL
from tests.doors.http.habits import APIS
from tests.doors.http.path_models import WAYS, PathUpstream, post
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_sdks import OURS as RECALL_TOOLS
from tests.doors.http.upstream import scripted
from tests.oracle import data

GPT: Final = "gpt-5"
OURS: Final = (*RECALL_TOOLS, "create_tasks", "update_task")


def _function(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


def _allowed_chat(mode: str, *names: str) -> Any:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [_function(each) for each in names]}}


def _allowed(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "name": each} for each in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def _gemini(mode: str, *names: str) -> Any:
    allowed = {"allowedFunctionNames": list(names)} if names else {}
    return {"functionCallingConfig": {"mode": mode, **allowed}}


Case = tuple[str, Any, Any]
"""An API, the agent's choice, and the choice that its provider gets."""
NARROWED: Final[Mapping[str, Case]] = {
    "chat, named": ("chat", _function(TOOL), _function(TOOL)),
    "chat, none": ("chat", "none", "none"),
    "chat, required": ("chat", "required", _allowed_chat("required", TOOL)),
    "chat, allowed": ("chat", _allowed_chat("auto", TOOL), _allowed_chat("auto", TOOL, *OURS)),
    "chat, required of some": ("chat", _allowed_chat("required", TOOL), _allowed_chat("required", TOOL)),
    "responses, named": ("responses", {"type": "function", "name": TOOL}, {"type": "function", "name": TOOL}),
    "responses, required": ("responses", "required", _allowed("required", TOOL)),
    "responses, allowed": ("responses", _allowed("auto", TOOL), _allowed("auto", TOOL, *OURS)),
    "responses, required of some": ("responses", _allowed("required", TOOL), _allowed("required", TOOL)),
    "messages, named": ("messages", {"type": "tool", "name": TOOL}, {"type": "tool", "name": TOOL}),
    "messages, none": ("messages", {"type": "none"}, {"type": "none"}),
    "messages, any of one": (
        "messages",
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "tool", "disable_parallel_tool_use": True, "name": TOOL},
    ),
    "gemini, any": ("gemini", _gemini("ANY"), _gemini("ANY", TOOL)),
    "gemini, any of some": ("gemini", _gemini("ANY", TOOL), _gemini("ANY", TOOL)),
    "gemini, none": ("gemini", _gemini("NONE"), _gemini("NONE")),
    "gemini, validated": ("gemini", _gemini("VALIDATED", TOOL), _gemini("VALIDATED", TOOL, *OURS)),
    "bedrock, named": ("bedrock", {"tool": {"name": TOOL}}, {"tool": {"name": TOOL}}),
}
WIDE: Final[Mapping[str, Case]] = {
    "messages": ("messages", {"type": "any"}, {"type": "any"}),
    "bedrock": ("bedrock", {"any": {}}, {"any": {}}),
}
"""Choices that cannot be narrowed, where the agent has two tools."""


def _body(api: str, choice: Any, *, tools: int = 1, model: str = GPT, history: Sequence[Any] = ()) -> Any:
    spoken = APIS[api]
    body: Any = {**spoken.request(history or [spoken.asked("Go")], False)}
    if not spoken.way:
        body["model"] = model
    if tools > 1 and api == "messages":
        body["tools"] = [*body["tools"], {"name": "other", "input_schema": {"type": "object"}}]
    elif tools > 1 and api == "bedrock":
        other = {"toolSpec": {"name": "other", "inputSchema": {"json": {"type": "object"}}}}
        body["toolConfig"] = {"tools": [*body["toolConfig"]["tools"], other]}
    if choice is None:
        return body
    if api == "gemini":
        return body | {"toolConfig": choice}
    if api == "bedrock":
        return body | {"toolConfig": {**body["toolConfig"], "toolChoice": choice}}
    return body | {"tool_choice": choice}


def _choice(api: str, body: Any) -> Any:
    if api == "gemini":
        return body.get("toolConfig")
    return body["toolConfig"].get("toolChoice") if api == "bedrock" else body.get("tool_choice")


def _tools(api: str, body: Any) -> Any:
    return body["toolConfig"]["tools"] if api == "bedrock" else body["tools"]


def _sent(here: Proxied, api: str, bodies: Sequence[Any]) -> tuple[list[str], list[Any], list[Any]]:
    """What the header says of each request, the bodies that the provider got, and the answers."""
    spoken = APIS[api]
    path = WAYS[spoken.way].path if spoken.way else spoken.path
    heard, answers = [], []
    for body in bodies:
        answer = asyncio.run(post(here.url + path, json.dumps(body).encode(), **{"x-prompt-sidecar-run": "forced"}))
        assert 200 == answer[0], answer[1]
        heard.append(answer[2]["x-prompt-sidecar-recall"])
        answers.append(json.loads(answer[1]))
    return heard, _bodies(here), answers


def _bodies(here: Proxied) -> list[Any]:
    other = here.upstream.other
    return other.bodies if isinstance(other, PathUpstream) else here.upstream.bodies


def _model(here: Proxied, api: str, *says: Says) -> None:
    here.upstream.model = scripted(*says)
    if way := APIS[api].way:
        here.upstream.other = PathUpstream(scripted(*says), WAYS[way])


@pytest.mark.parametrize("case", NARROWED)
def test_the_sidecars_tools_are_there_from_the_first_request_on(case: str) -> None:
    """They stay the same bytes when the choice is free, and the forced choice is among the agent's own."""
    api, choice, narrowed = NARROWED[case]
    with proxied(scripted()) as here:
        _model(here, api, Says("One."), Says("Two."))
        heard, bodies, _ = _sent(here, api, [_body(api, choice), _body(api, None)])

    assert ["offered", "offered"] == heard
    assert narrowed == _choice(api, bodies[0])
    assert all(f'"{name}"' in json.dumps(_tools(api, bodies[0])) for name in OURS)
    assert json.dumps(_tools(api, bodies[0])) == json.dumps(_tools(api, bodies[1]))
    assert _choice(api, bodies[1]) is None


@pytest.mark.parametrize("api", WIDE)
def test_a_choice_that_cannot_be_narrowed_goes_without_them(api: str) -> None:
    """Until the first request that leaves the choice free; from there on they stay."""
    _, choice, _ = WIDE[api]
    with proxied(scripted()) as here:
        _model(here, api, *(Says(str(number)) for number in range(4)))
        asked = [_body(api, each, tools=2) for each in (choice, choice, None, choice)]
        heard, bodies, _ = _sent(here, api, asked)

    assert ["forced", "forced", "offered", "offered"] == heard
    assert _tools(api, asked[0]) == _tools(api, bodies[0]) == _tools(api, bodies[1])
    assert _tools(api, bodies[2]) == _tools(api, bodies[3]) != _tools(api, bodies[0])
    assert choice == _choice(api, bodies[3])


@pytest.mark.parametrize("model", ["llama-4", "gpt-oss-120b", "scripted", "x" * 5_000])
def test_servers_of_other_models_get_no_list_of_allowed_tools(model: str) -> None:
    """Some refuse one, and some read it as a free choice."""
    with proxied(scripted()) as here:
        _model(here, "chat", Says("One."), Says("Two."))
        heard, bodies, _ = _sent(here, "chat", [_body("chat", each, model=model) for each in ("required", None)])

    assert ["forced", "offered"] == heard
    assert "required" == _choice("chat", bodies[0])
    assert 1 == len(bodies[0]["tools"]) < len(bodies[1]["tools"])


@pytest.mark.parametrize("always", [False, True])
def test_a_provider_that_refuses_the_list_gets_the_agents_request(*, always: bool) -> None:
    """The agent sees an answer, or what the provider has against its own request; one refusal tells for the run."""
    got: list[Any] = []

    async def judged(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        got.append(body)
        if always or isinstance(body.get("tool_choice"), dict):
            return web.json_response({"error": {"message": "tool_choice: no such type"}}, status=400)
        message = {"role": "assistant", "content": "Done."}
        return web.json_response({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

    with proxied(scripted()) as here:
        here.upstream.other, here.upstream.only_other = judged, True
        raw = json.dumps(_body("chat", "required")).encode()
        url, run = here.url + APIS["chat"].path, {"x-prompt-sidecar-run": "refused"}
        answers = [asyncio.run(post(url, raw, **run)) for _ in range(2)]

    choices = [each.get("tool_choice") for each in got]
    assert ([400] * 2 if always else [200] * 2) == [status for status, _, _ in answers]
    assert ["forced"] * 2 == [headers["x-prompt-sidecar-recall"] for _, _, headers in answers]
    narrow, plain = _allowed_chat("required", TOOL), "required"
    assert ([narrow, plain, narrow, plain] if always else [narrow, plain, plain]) == choices
    assert 1 == len(got[1]["tools"])


@pytest.mark.parametrize("api", WIDE)
def test_a_model_in_a_loop_is_left_the_agents_tools_where_it_must_call_one(api: str) -> None:
    """A choice that forbids all calls would break what the agent relies on."""
    _, choice, _ = WIDE[api]
    loop = [Says("", [(f"own-{number}", OURS[1], {"query": str(number)})]) for number in range(6)]
    with proxied(scripted()) as here:
        _model(here, api, Says("Free."), *loop, Says("", [("c1", TOOL, {"n": 1})]))
        heard, bodies, answers = _sent(here, api, [_body(api, each, tools=2) for each in (None, choice)])

    assert ["offered", "offered"] == heard
    assert TOOL in json.dumps(answers[-1])
    assert choice == _choice(api, bodies[-1])
    assert 2 == len(_tools(api, bodies[-1])) < len(_tools(api, bodies[-2]))


def test_tools_that_a_list_cannot_name_leave_the_choice_wide() -> None:
    """A namespace, or a function that is loaded later."""
    with proxied(scripted()) as here:
        _model(here, "responses", Says("One."), Says("Two."))
        body = _body("responses", "required")
        later = {"type": "function", "name": "later", "parameters": {"type": "object"}, "defer_loading": True}
        heard, bodies, _ = _sent(here, "responses", [body | {"tools": [*body["tools"], later]}])

    assert ["forced"] == heard
    assert ("required", 2) == (bodies[0]["tool_choice"], len(bodies[0]["tools"]))


def test_recorded_first_choices() -> None:
    """The choices with which recorded clients got no recall, in silence."""
    asked = json.loads(data.need("failing/forced_first_choice.json").read_text())["first_request_tool_choice"]
    known = {
        "a named tool": ["chat, named", "responses, named", "messages, named", "bedrock, named"],
        "required": ["chat, required", "responses, required"],
        '{"type": "allowed_tools", "mode": "auto"}': ["responses, allowed", "chat, allowed"],
        "Gemini VALIDATED": ["gemini, validated"],
        "Gemini VALIDATED with allowed_function_names": ["gemini, validated"],
    }
    assert set(asked) <= set(known)
    assert all(name in NARROWED for names in known.values() for name in names)
