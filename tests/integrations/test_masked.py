"""Tools of agents built with frameworks get the values that the guard has masked, and models see none."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from prompt_sidecar.client import AsyncClient, Client
from prompt_sidecar.client.arguments import Format
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.integrations.httpx import AsyncSidecarTransport, SidecarTransport
from prompt_sidecar.integrations.wire import arguments_in
from prompt_sidecar.runs.service import Runs
from prompt_sidecar.server.lifecycle import Server
from prompt_sidecar.server.options import ServerOptions
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.client.serving import PATIENT, sdk
from tests.http.upstream import Upstream, scripted
from tests.integrations.environments import ready
from tests.integrations.running import run
from tests.server.serving import counter

VALUE: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
GUARD: Final = GuardOptions(mode="enforce", restore=("deploy:github_token",))
PROGRAMS: Final = {
    "langchain": "langchain_agent",
    "openai-agents": "openai_agents_agent",
    "pydantic-ai": "pydantic_ai_agent",
}


def _calls_with_a_mask(body: Any) -> Says:
    found = re.search("⟦github_token:[a-z0-9]+⟧", json.dumps(body, ensure_ascii=False))
    assert found is not None
    return Says("", [("c1", "deploy", {"token": f"a {found[0]} b"}), ("c2", "show", {"text": found[0]})])


@contextmanager
def masking() -> Iterator[str]:
    """Run a sidecar that masks; give its address."""
    server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600))
    policy = preset("cache_first")
    server.start(Runs(counter=counter(), policy=policy, limits=Limits(), key=b"k" * 32, clock=time.time, guard=GUARD))
    try:
        yield server.addresses[0]
    finally:
        server.stop(0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tools_get_values(name: str, stream: bool, tmp_path: Path) -> None:
    """Those that the settings name. Another tool gets the mask, and the agent's own history keeps masks in calls."""
    environment = ready(name)
    with Upstream(scripted(_calls_with_a_mask, Says("Done."))) as there, masking() as address:
        words = {"stream": stream, "options": {}, "api": "openai_chat", "sidecar": address, "upstream": there.url}
        question = f"Deploy with {VALUE}."
        told = run(environment, PROGRAMS[name], {**words, "window": 100_000, "question": question}, tmp_path)
        sent = [each.raw for each in there.sent]

    assert [] == there.defects
    assert "Done." == told["answer"]
    assert f"a {VALUE} b" == told["got"]["deploy"]
    assert told["got"]["show"].startswith("⟦github_token:")
    assert f"a {VALUE} b" not in told["held"]
    assert 2 == len(sent)
    assert [] == [body for body in sent if VALUE.encode() in body]


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_the_sidecar_tools_get_what_the_model_wrote(name: str, tmp_path: Path) -> None:
    """A mask that nobody knows stays, and the agent goes on."""
    mask = "⟦github_token:aaaaaaaaaa⟧"
    calls = Says("", [("c1", "deploy", {"token": mask})])
    environment = ready(name)
    with Upstream(scripted(calls, Says("Done."))) as there:
        words = {"stream": False, "options": {}, "api": "openai_chat", "sidecar": "127.0.0.1:1", "upstream": there.url}
        told = run(environment, PROGRAMS[name], {**words, "window": 100_000, "question": "Deploy."}, tmp_path)

    assert "Done." == told["answer"]
    assert {"deploy": mask} == told["got"]


def _called(format: str, mask: str) -> Any:
    """An answer that calls two tools with a mask."""
    calls = {"deploy": {"token": f"a {mask} b"}, "show": {"text": mask}}
    if format == "openai_chat":
        functions = [{"name": name, "arguments": json.dumps(given)} for name, given in calls.items()]
        made = [{"id": "c", "type": "function", "function": each} for each in functions]
        return {"choices": [{"message": {"role": "assistant", "content": mask, "tool_calls": made}}]}
    if format == "openai_responses":
        made = [{"type": "function_call", "name": name, "arguments": json.dumps(it)} for name, it in calls.items()]
        return {"output": [{"type": "message", "content": [{"type": "output_text", "text": mask}]}, *made]}
    if format == "anthropic_messages":
        made = [{"type": "tool_use", "id": name, "name": name, "input": given} for name, given in calls.items()]
        return {"content": [{"type": "text", "text": mask}, *made]}
    if format == "gemini_contents":
        made = [{"functionCall": {"name": name, "args": given}} for name, given in calls.items()]
        return {"candidates": [{"content": {"role": "model", "parts": [{"text": mask}, *made]}}]}
    made = [{"toolUse": {"toolUseId": name, "name": name, "input": given}} for name, given in calls.items()]
    return {"output": {"message": {"role": "assistant", "content": [{"text": mask}, *made]}}}


ASKED: Final[dict[Format, tuple[str, Any]]] = {
    "openai_chat": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": VALUE}]}),
    "openai_responses": ("/v1/responses", {"model": "m", "input": [{"role": "user", "content": VALUE}]}),
    "anthropic_messages": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": VALUE}]},
    ),
    "gemini_contents": ("/v1/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": VALUE}]}]}),
    "bedrock_converse": ("/model/m/converse", {"messages": [{"role": "user", "content": [{"text": VALUE}]}]}),
}


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
@pytest.mark.parametrize("format", ASKED)
def test_behind_the_transport_tools_get_values(format: Format, asynchronous: bool, compressed: bool) -> None:
    """In answers that come at once. All else of them stays: text that a model reads has masks."""
    library = sdk("httpx2")
    path, body = ASKED[format]
    masks: list[str] = []

    def provider(request: Any) -> Any:
        found = re.search("⟦github_token:[a-z0-9]+⟧", json.dumps(json.loads(request.content), ensure_ascii=False))
        assert found is not None
        masks.append(found[0])
        raw = json.dumps(_called(format, found[0])).encode()
        headers = {"content-type": "application/json", "x-of": "provider"}
        if compressed:
            raw, headers = gzip.compress(raw), headers | {"content-encoding": "gzip"}
        return library.Response(200, headers=headers, stream=library.ByteStream(raw))

    async def asked(address: str) -> Any:
        async with AsyncClient(address, deadline=PATIENT) as client:
            transport = AsyncSidecarTransport(client, "run", wrapped=library.MockTransport(provider))
            async with library.AsyncClient(transport=transport, base_url="http://provider") as http:
                return await http.post(path, json=body)

    with masking() as address:
        if asynchronous:
            answer = asyncio.run(asked(address))
        else:
            with Client(address, deadline=PATIENT) as client:
                transport = SidecarTransport(client, "run", wrapped=library.MockTransport(provider))
                with library.Client(transport=transport, base_url="http://provider") as http:
                    answer = http.post(path, json=body)

    (mask,) = masks
    wanted = _called(format, mask)
    for each in arguments_in(format, wanted):
        if each.tool == "deploy":
            each.put(json.dumps({"token": f"a {VALUE} b"}))
    assert wanted == answer.json()
    assert "provider" == answer.headers["x-of"]
    assert len(answer.content) == int(answer.headers["content-length"])


@pytest.mark.parametrize("streamed", [False, True])
def test_what_the_transport_leaves(streamed: bool) -> None:
    """Answers without masks, and streams with them, come byte for byte as they were sent, and can be read raw."""
    library = sdk("httpx2")
    path, body = ASKED["openai_chat"]
    mask = "⟦github_token:aaaaaaaaaa⟧"
    raw = gzip.compress(json.dumps(_called("openai_chat", mask if streamed else "no mask")).encode())
    kind = "text/event-stream" if streamed else "application/json"

    def provider(_: Any) -> Any:
        headers = {"content-type": kind, "content-encoding": "gzip", "content-length": str(len(raw))}
        return library.Response(200, headers=headers, stream=library.ByteStream(raw))

    with masking() as address, Client(address, deadline=PATIENT) as client:
        transport = SidecarTransport(client, "run", wrapped=library.MockTransport(provider))
        with (
            library.Client(transport=transport, base_url="http://provider") as http,
            http.stream("POST", path, json=body) as response,
        ):
            assert raw == b"".join(response.iter_raw())
            assert "gzip" == response.headers["content-encoding"]


def test_what_the_agent_sends_back_is_masked_again() -> None:
    """Its history has the values that the transport put in; the provider sees none of them."""
    library = sdk("httpx2")
    said = [{"role": "user", "content": f"Deploy with {VALUE}."}]
    with (
        Upstream(scripted(_calls_with_a_mask, Says("Done."))) as there,
        masking() as address,
        Client(address, deadline=PATIENT) as client,
        library.Client(transport=SidecarTransport(client, "run"), base_url=there.url, timeout=PATIENT) as http,
    ):
        turn = http.post("/v1/chat/completions", json={"model": "m", "messages": said}).json()["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in turn["tool_calls"]]
        last = http.post("/v1/chat/completions", json={"model": "m", "messages": [*said, turn, *results]})
        sent = [each.raw for each in there.sent]

    assert VALUE in json.dumps(turn)
    assert 200 == last.status_code
    assert [] == there.defects
    assert 2 == len(sent)
    assert [] == [raw for raw in sent if VALUE.encode() in raw]
