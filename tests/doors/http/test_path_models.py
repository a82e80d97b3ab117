"""Gemini and Bedrock through the door: trimmed, answers and streams as they came, usage reported, refusals learned."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar.guard.options import GuardOptions
from tests.client.histories import result
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, PathAgent, PathUpstream, pieces, post
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted

CALLS = 32
EACH_WAY = pytest.mark.parametrize("name", WAYS)
SECRET = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
ENFORCE = GuardOptions(mode="enforce", restore=(f"{TOOL}:github_token",))


def _step(number: int) -> Says:
    return Says(f"Step {number}.", [(f"call-{number}", TOOL, {"number": number})])


def _goes_on(body: Any) -> Says:
    return Says("Go on.", tokens={"input": len(json.dumps(body)) // 4, "cached": 0, "output": 30})


def _upstream(here: Proxied, name: str, model: Callable[[Any], Says]) -> PathUpstream:
    made = PathUpstream(model, WAYS[name])
    here.upstream.other = made
    return made


def _usage(here: Proxied, run: str, reports: int) -> Any:
    """A run's usage once it has so many reports: they are made behind the answer."""
    gives_up, until = threading.Event(), time.monotonic() + PATIENCE
    while here.core.figures("local", run).usage.reports < reports:
        gives_up.wait(0.01)
        assert time.monotonic() < until, "not all was reported"
    return here.core.figures("local", run).usage


@EACH_WAY
def test_a_long_run(name: str) -> None:
    """Each prompt fits and is valid, each answer's bytes are the provider's, usage is reported, the run is one.

    An array is not read piece by piece, so its model is not offered the sidecar's tools.
    """
    steps = [_step(number) for number in range(1, CALLS + 1)]
    says = scripted(*steps, Says("All builds were looked at."))
    usages: list[Mapping[str, int]] = []

    def model(body: Any) -> Says:
        tokens = len(json.dumps(body)) // 4
        usages.append({"input": tokens, "cached": tokens // 2, "output": 30})
        return replace(says(body), tokens=usages[-1])

    with proxied(scripted()) as here:
        there = _upstream(here, name, model)
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text("Which build failed?")
        runs = set()
        for step in [*steps, None]:
            status, body, headers = agent.ask()
            assert (200, there.answered) == (status, body)
            assert ("true", "r1") == (headers["x-prompt-sidecar-fits"], headers["request-id"])
            runs.add(headers["x-prompt-sidecar-run"])
            if step is not None:
                agent.take(step, result(int(step.calls[0][2]["number"])))
        usage = _usage(here, min(runs), CALLS + 1)

    assert [] == there.defects
    assert 1 == len(runs)
    assert {WAYS[name].path} == set(there.paths)
    assert int(headers["x-prompt-sidecar-trims"]) > 0
    assert max(map(len, there.raw)) < 25_000 < len(agent.body())
    assert CALLS + 1 == usage.reports
    expected = [sum(each[name] for each in usages) for name in ("input", "cached", "output")]
    assert expected == [usage.input_tokens, usage.cached_tokens, usage.output_tokens]
    offered = [word in json.dumps(there.bodies) for word in ("recall_elided_content", " id=")]
    assert [name != "gemini-array"] * 2 == offered


@EACH_WAY
def test_a_refusal_as_too_long_is_learned_from(name: str) -> None:
    """The prompt is trimmed to the limit that the provider names, and sent again; the agent sees the answer alone."""
    refusal = Says("The input token count (5000) exceeds the maximum number of tokens allowed (3000).", status=400)
    with proxied(scripted(), window=100_000) as here:
        there = _upstream(here, name, scripted(refusal, Says("Done.")))
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text("Go.")
        for number in range(1, 12):
            agent.take(_step(number), result(number))
        status, body, headers = agent.ask()
        usage = _usage(here, headers["x-prompt-sidecar-run"], 2)

    assert (200, there.answered) == (status, body)
    assert len(there.raw[1]) < len(there.raw[0])
    assert (1, 2) == (usage.refusals, usage.reports)
    assert [] == there.defects


@EACH_WAY
def test_other_errors_reach_the_agent_unchanged(name: str) -> None:
    """Status and bytes."""
    with proxied(scripted()) as here:
        there = _upstream(here, name, scripted(Says("no such model", status=404)))
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text("Go.")
        status, body, _ = agent.ask()

    assert (404, there.answered) == (status, body)


@EACH_WAY
def test_what_the_guard_cannot_read_is_refused_in_the_providers_shape(name: str) -> None:
    """It is not sent on, and the SDK knows the error."""
    way = WAYS[name]
    with proxied(scripted(), guard=ENFORCE) as here:
        there = _upstream(here, name, scripted())
        status, body, headers = asyncio.run(post(here.url + way.path, b"not JSON, and " + SECRET.encode()))
        assert [] == there.bodies

    error = json.loads(body)
    assert 403 == status
    assert SECRET.encode() not in body
    if way.format == "bedrock_converse":
        assert error["message"].startswith("GUARD_UNREAD")
        assert "AccessDeniedException" == headers["x-amzn-errortype"]
    else:
        assert error["error"]["message"].startswith("GUARD_UNREAD")
        assert (403, "PERMISSION_DENIED") == (error["error"]["code"], error["error"]["status"])


@pytest.mark.parametrize("name", ["gemini", "gemini-sse", "bedrock", "bedrock-stream"])
def test_masks_in_calls_become_values(name: str) -> None:
    """The provider sees a mask, the agent's tool gets the value; the rest of the answer is the provider's."""

    def uses_the_mask(body: Any) -> Says:
        text = json.dumps(body, ensure_ascii=False)
        begin = text.index("⟦github_token:")
        return Says("I deploy it.", [("call-1", TOOL, {"token": text[begin : text.index("⟧", begin) + 1]})])

    with proxied(scripted(), guard=ENFORCE, window=100_000) as here:
        there = _upstream(here, name, uses_the_mask)
        agent = PathAgent(WAYS[name], here.url)
        agent.add_user_text(f"Deploy with {SECRET}.")
        _, body, _ = agent.ask()

    assert SECRET.encode() not in there.raw[0]
    assert 1 == body.count(SECRET.encode())
    if name == "gemini-sse":
        first = there.answered.split(b"\r\n\r\n")[0]
        assert body.startswith(first + b"\r\n\r\n")


@pytest.mark.parametrize("guard", [None, ENFORCE], ids=["as it came", "restored"])
def test_a_stream_that_is_cut_off_breaks_and_is_not_reported(guard: GuardOptions | None) -> None:
    """The agent must not take a part for the whole; the next request goes on."""
    made = pieces(WAYS["gemini-sse"], Says("A long answer.", tokens={"input": 10, "cached": 0, "output": 3}))

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(made[0])
        assert request.transport is not None
        request.transport.close()
        return response

    with proxied(scripted(), guard=guard) as here:
        here.upstream.other = other
        agent = PathAgent(WAYS["gemini-sse"], here.url)
        agent.add_user_text("Go.")
        with pytest.raises(aiohttp.ClientPayloadError):
            agent.ask()
        there = _upstream(here, "gemini-sse", _goes_on)
        status, body, headers = agent.ask()
        usage = _usage(here, headers["x-prompt-sidecar-run"], 1)

    assert (200, there.answered) == (status, body)
    assert 1 == usage.reports


def test_tokens_of_gemini_are_counted_of_the_trimmed_prompt() -> None:
    """And nothing is recorded."""
    seen = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append(await request.read())
        return web.json_response({"totalTokens": 7})

    with proxied(scripted()) as here:
        here.upstream.other = other
        agent = PathAgent(WAYS["gemini"], here.url)
        agent.add_user_text("Go.")
        for number in range(1, 15):
            agent.take(_step(number), result(number))
        body = json.dumps({"contents": agent.history}).encode()
        _, answer, headers = asyncio.run(post(f"{here.url}/v1beta/models/scripted:countTokens", body))
        assert 0 == len(here.core)

    assert {"totalTokens": 7} == json.loads(answer)
    assert int(headers["x-prompt-sidecar-trims"]) > 0
    assert len(seen[0]) < len(body) // 2


def test_signatures_of_gemini_outlive_a_restart() -> None:
    """Gemini 3 wants that of each call since the user's last words: a new sidecar trims and keeps them all."""
    way, history = WAYS["gemini-sse"], PathAgent(WAYS["gemini-sse"], "").history
    for half in (range(1, 13), range(13, 25)):
        with proxied(scripted()) as here:
            there = _upstream(here, "gemini-sse", _goes_on)
            agent = PathAgent(way, here.url, history)
            if not history:
                agent.add_user_text("Which build failed?")
            for number in half:
                agent.take(_step(number), result(number))
                history[-2]["parts"][1]["thoughtSignature"] = base64.b64encode(b"signature %d" % number).decode()
                status, _, headers = agent.ask()
                assert (200, "true") == (status, headers["x-prompt-sidecar-fits"])

        assert [] == there.defects
        assert int(headers["x-prompt-sidecar-trims"]) > 0
        parts = [part for body in there.bodies for content in body["contents"] for part in content["parts"]]
        calls = [part for part in parts if "functionCall" in part]
        assert len(calls) > len(half)
        assert all("thoughtSignature" in part for part in calls)


def test_a_signed_request_passes_untouched() -> None:
    """The signature covers the body."""
    with proxied(scripted()) as here:
        there = _upstream(here, "bedrock", scripted(Says("Done.")))
        agent = PathAgent(WAYS["bedrock"], here.url)
        agent.add_user_text("Go.")
        for number in range(1, 15):
            agent.take(_step(number), result(number))
        _, body, headers = agent.ask(authorization="AWS4-HMAC-SHA256 Credential=x, Signature=y")

    assert [agent.body()] == there.raw
    assert there.answered == body
    assert "x-prompt-sidecar-run" not in headers
