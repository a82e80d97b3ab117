"""The transport, with the SDKs of openai and anthropic and their own HTTP library."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from prompt_sidecar.client import AsyncClient, Client
from prompt_sidecar.integrations import in_run
from prompt_sidecar.integrations.httpx import AsyncSidecarTransport, SidecarTransport
from tests.client.histories import history, result
from tests.client.provider import MODEL, TOKENS
from tests.client.serving import PATIENT, sdk
from tests.client.test_sdks import FORMATS, MORE, PROMPT, TOOLS, own_turn
from tests.doors.grpc.serving import Serving, serving
from tests.integrations.upstream import ANSWER, MOST_BYTES, STEPS, WINDOW, Upstream

OPTIONS: Any = {"context_window": WINDOW, "output_reserve": 500}
CREATE = {
    "openai_chat": lambda model: model.chat.completions.create,
    "openai_responses": lambda model: model.responses.create,
    "anthropic_messages": lambda model: model.messages.create,
}


@pytest.fixture
def served() -> Iterator[Serving]:
    """A real server."""
    with serving() as running:
        yield running


@pytest.fixture
def client(served: Serving) -> Iterator[Client]:
    """A client of it."""
    with Client(served.address, deadline=PATIENT) as made:
        yield made


def counted(client: Client, run_id: str) -> Any:
    """The figures that were reported for a run."""
    return client.get_run(run_id).usage


def library() -> Any:
    """The HTTP library that the SDKs use."""
    return sdk("httpx2")


def made(format: str, url: str, http: Any, *, asyncio: bool = False) -> Any:
    """An SDK's function that calls the model."""
    if format == "anthropic_messages":
        package, name, suffix = sdk("anthropic"), "Anthropic", ""
    else:
        package, name, suffix = sdk("openai"), "OpenAI", "/v1"
    model = getattr(package, "Async" * asyncio + name)(
        base_url=url + suffix, api_key="k", max_retries=0, http_client=http
    )
    return CREATE[format](model)


def keywords(format: str, messages: list[Any], **more: Any) -> Any:
    """Keywords of one model call."""
    return {"model": MODEL, "tools": [TOOLS[format]], PROMPT[format]: messages, **MORE[format], **more}


def tool_calls(format: str, response: Any) -> list[str]:
    """The ids of the calls in a response."""
    if format == "openai_chat":
        return [call.id for call in response.choices[0].message.tool_calls or ()]
    if format == "openai_responses":
        return [item.call_id for item in response.output if item.type == "function_call"]
    return [block.id for block in response.content if block.type == "tool_use"]


def answers(format: str, call_id: str) -> list[Any]:
    """The tool's answer to a call."""
    entry = history(format, int(call_id.rsplit("-", 1)[1]))[-1]
    assert call_id in json.dumps(entry)
    return [entry]


def agent(format: str, create: Any) -> Any:
    """An agent that knows nothing of the sidecar: it keeps its whole history and sends it at every call."""
    messages: list[Any] = [{"role": "user", "content": "Which build failed?"}]
    while True:
        response = create(**keywords(format, messages))
        called = tool_calls(format, response)
        if not called:
            return response
        messages += own_turn(format, response)
        for call_id in called:
            messages += answers(format, call_id)


@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_that_only_has_another_transport(format: str, client: Client) -> None:
    """32 calls over a window of twelve: each prompt fits and is valid, and each answer's usage is reported."""
    with (
        Upstream() as there,
        library().Client(transport=SidecarTransport(client, "run", **OPTIONS)) as http,
    ):
        response = agent(format, made(format, there.url, http))

        assert ([], 0) == (there.defects, there.refused)
        assert STEPS + 1 == len(there.bodies)
        assert ANSWER in response.model_dump_json()
    usage = counted(client, "run")
    assert (STEPS + 1, (STEPS + 1) * TOKENS["input"]) == (usage.reports, usage.input_tokens)
    assert (STEPS + 1) * TOKENS["cached"] == usage.cached_tokens
    assert (STEPS + 1) * TOKENS["output"] == usage.output_tokens
    assert 0 == client.untrimmed
    assert "id=" not in json.dumps(there.bodies[-1])


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_is_the_same_byte_for_byte_and_its_usage_is_reported(format: str, client: Client) -> None:
    """The chunks arrive as the provider sent them; where the last ends, the report is made."""
    options = {"stream": True} | ({"stream_options": {"include_usage": True}} if format == "openai_chat" else {})
    path = {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}.get(format, "/v1/messages")
    with (
        Upstream(most_bytes=1_000_000) as there,
        library().Client(transport=SidecarTransport(client, "run", **OPTIONS)) as http,
    ):
        body = keywords(format, history(format, 30), **options)
        with http.stream("POST", there.url + path, json=body) as response:
            received = b"".join(response.iter_raw())

        assert there.sent == [received]
        assert len(json.dumps(there.bodies[0])) < MOST_BYTES
    usage = counted(client, "run")
    assert (1, TOKENS["input"], TOKENS["output"]) == (usage.reports, usage.input_tokens, usage.output_tokens)


@pytest.mark.parametrize("format", FORMATS)
def test_streams_pass_through_asyncio(format: str, served: Serving) -> None:
    """The same through asyncio, with the SDK's own streams."""

    async def main() -> Any:
        options = {"stream": True} | ({"stream_options": {"include_usage": True}} if format == "openai_chat" else {})
        async with AsyncClient(served.address, deadline=PATIENT) as client:
            transport = AsyncSidecarTransport(client, lambda _: "by-function", **OPTIONS)
            async with library().AsyncClient(transport=transport) as http:
                create = made(format, there.url, http, asyncio=True)
                stream = await create(**keywords(format, history(format, 30), **options))
                events = [event async for event in stream]
                whole = await create(**keywords(format, history(format, 31)))
            return (events, whole), (await client.get_run("by-function")).usage

    with Upstream(most_bytes=MOST_BYTES) as there:
        (events, whole), usage = asyncio.run(main())
        assert ([], 0) == (there.defects, there.refused)
    assert len(events) > 3
    assert tool_calls(format, whole)
    assert (2, 2 * TOKENS["input"], 2 * TOKENS["output"]) == (usage.reports, usage.input_tokens, usage.output_tokens)


def test_a_refused_prompt_is_sent_again_shorter_and_the_limit_is_learned(client: Client) -> None:
    """The agent does not see the refusal; later prompts obey the limit that it named."""
    with (
        Upstream(most_bytes=42_000) as there,
        library().Client(transport=SidecarTransport(client, "run", context_window=60_000)) as http,
    ):
        agent("openai_chat", made("openai_chat", there.url, http))

        assert [] == there.defects
        assert 1 <= there.refused <= 3
    usage = counted(client, "run")
    assert there.refused == usage.refusals
    assert usage.learned_limit


def test_which_run(client: Client) -> None:
    """A header goes before `in_run`, and that before the transport's own; without any nothing is trimmed."""
    long = keywords("openai_chat", history("openai_chat", 30))
    with Upstream(most_bytes=1_000_000) as there:
        with library().Client(transport=SidecarTransport(client, **OPTIONS)) as http:
            create = made("openai_chat", there.url, http)
            create(**long)
            with in_run("around"):
                create(**long)
                create(**long, extra_headers={"x-prompt-sidecar-run": "header"})
        with library().Client(transport=SidecarTransport(client, "made", **OPTIONS)) as http:
            made("openai_chat", there.url, http)(**long)
        sizes = [len(json.dumps(body)) for body in there.bodies]
        assert all("x-prompt-sidecar-run" not in {name.lower() for name in each} for each in there.headers)
    assert sizes[0] > 60_000
    assert all(size < MOST_BYTES for size in sizes[1:])
    assert [1, 1, 1] == [counted(client, name).reports for name in ("around", "header", "made")]


def test_without_the_sidecar_the_agent_goes_on() -> None:
    """Where nobody answers, a prompt goes as it was given, and the model's answer comes back."""
    with (
        Upstream(steps=1) as there,
        Client("127.0.0.1:1", deadline=PATIENT) as client,
        library().Client(transport=SidecarTransport(client, "run")) as http,
    ):
        assert ANSWER in agent("openai_chat", made("openai_chat", there.url, http)).model_dump_json()
        assert 2 == client.untrimmed


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/embeddings", {}),
        ("/v1/threads/t/messages", {}),
        ("/v1/chat/completions", {"authorization": "AWS4-HMAC-SHA256 Credential=x"}),
    ],
)
def test_other_requests_pass_untouched(path: str, headers: dict[str, str], client: Client) -> None:
    """Other paths, and bodies that a signature covers, are sent as they are."""
    seen: list[bytes] = []

    def handler(request: Any) -> Any:
        seen.append(request.content)
        return library().Response(200, json={})

    raw = json.dumps({"messages": history("openai_chat", 30), "model": MODEL}).encode()
    wrapped = library().MockTransport(handler)
    with library().Client(transport=SidecarTransport(client, "run", wrapped=wrapped, **OPTIONS)) as http:
        http.post("http://provider.test" + path, content=raw, headers=headers)

    assert [raw] == seen
    assert 0 == client.trimmed


def converse(*events: Any) -> bytes:
    """An event stream of Amazon's, without checksums."""
    framed = b""
    for event in events:
        payload = json.dumps(event).encode()
        header = b"\x0b:event-type\x07\x00\x01x"
        total = 16 + len(header) + len(payload)
        framed += total.to_bytes(4, "big") + len(header).to_bytes(4, "big") + b"\0" * 4 + header + payload + b"\0" * 4
    return framed


GEMINI = {"promptTokenCount": 90, "cachedContentTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
BEDROCK = {"inputTokens": 80, "cacheReadInputTokens": 10, "outputTokens": 7, "totalTokens": 87}


@pytest.mark.parametrize(
    ("path", "kind", "answer", "expected"),
    [
        ("m:generateContent", "application/json", json.dumps({"usageMetadata": GEMINI}).encode(), (90, 10, 7)),
        (
            "m:streamGenerateContent?alt=sse",
            "text/event-stream",
            b'data: {"candidates": []}\r\n\r\ndata: ' + json.dumps({"usageMetadata": GEMINI}).encode() + b"\r\n\r\n",
            (90, 10, 7),
        ),
        (
            "m:streamGenerateContent",
            "application/json",
            json.dumps([{}, {"usageMetadata": GEMINI}]).encode(),
            (90, 10, 7),
        ),
        ("converse", "application/json", json.dumps({"usage": BEDROCK}).encode(), (90, 10, 7)),
        (
            "converse-stream",
            "application/vnd.amazon.eventstream",
            converse({"contentBlockDelta": {}}, {"usage": BEDROCK}),
            (90, 10, 7),
        ),
    ],
)
def test_gemini_and_bedrock(path: str, kind: str, answer: bytes, expected: tuple[int, ...], client: Client) -> None:
    """The model's name is in the path, and the usage in members of other names; compressed answers are read too."""
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(json.loads(request.content))
        headers = {"content-type": kind, "content-encoding": "gzip"}
        return library().Response(200, headers=headers, stream=library().ByteStream(gzip.compress(answer)))

    if "converse" in path:
        base = "/model/anthropic.claude-3-sonnet%3A0/"
        messages: list[Any] = [{"role": "user", "content": [{"text": "Go."}]}]
        for number in range(30):
            use: Any = {"toolUseId": f"t{number}", "name": "read_log", "input": {}}
            done: Any = {"toolUseId": f"t{number}", "content": [{"text": result(number)}]}
            messages += [
                {"role": "assistant", "content": [{"toolUse": use}]},
                {"role": "user", "content": [{"toolResult": done}]},
            ]
        body: Any = {"messages": messages}
    else:
        base = "/v1beta/models/"
        contents: list[Any] = [{"role": "user", "parts": [{"text": "Go."}]}]
        for number in range(30):
            answered: Any = {"name": "read_log", "response": {"output": result(number)}}
            contents += [
                {"role": "model", "parts": [{"functionCall": {"name": "read_log", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": answered}]},
            ]
        body = {"contents": contents}
    wrapped = library().MockTransport(handler)
    with library().Client(transport=SidecarTransport(client, "run", wrapped=wrapped, **OPTIONS)) as http:
        response = http.post(f"http://provider.test{base}{path}", json=body)

    assert answer == response.content
    assert len(json.dumps(seen[0])) < MOST_BYTES
    usage = counted(client, "run")
    assert expected == (usage.input_tokens, usage.cached_tokens, usage.output_tokens)


def test_a_client_of_the_other_kind_is_refused_at_once() -> None:
    """It could not be driven: each request of the agent would fail after the provider had answered it."""
    with Client("127.0.0.1:1") as blocking:
        with pytest.raises(TypeError, match=r"client is a Client; this needs .*\.AsyncClient"):
            AsyncSidecarTransport(blocking)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"client is a AsyncClient; this needs .*\.Client"):
            SidecarTransport(AsyncClient("127.0.0.1:1"))  # type: ignore[arg-type]


def test_a_request_of_an_agents_own_class() -> None:
    """The library is found by the class that it is derived from."""

    class Own(library().Request):  # type: ignore[misc]
        pass

    with Upstream() as there, Client("127.0.0.1:1") as client, SidecarTransport(client) as transport:
        response = transport.handle_request(Own("GET", f"{there.url}/nothing"))
        response.read()
    assert response.status_code
