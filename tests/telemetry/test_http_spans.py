"""Spans of a real HTTP door: one for each request, in its agent's trace, and one for each call of a provider in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from aiohttp import web
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings
from prompt_sidecar.providers.api import OTHER_REASON
from prompt_sidecar.providers.table import APIS
from prompt_sidecar.telemetry import spans
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import assemble, resource
from prompt_sidecar.trim.presets import preset
from tests.client.provider import TOKENS, Says
from tests.doors.http import socket_provider
from tests.doors.http.path_models import WAYS, PathAgent, PathUpstream
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.test_response_sockets import agent, answered, create, user
from tests.doors.http.upstream import Model, scripted
from tests.telemetry.telemetry_page import PAGE
from tests.waiting import until

TRACE: Final = 0x0AF7651916CD43DD8448EB211C80319C
PARENT: Final = 0xB7AD6B7169203331
CONTEXT: Final = {
    "traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01",
    "tracestate": "vendor=1",
    "baggage": "secret=1",
}
CHAT: Final = "/v1/chat/completions"
SECRET: Final = "zanzibar-8412"
_USER: Final = {"role": "user", "content": "hello"}
REQUESTS: Final[Mapping[str, tuple[str, dict[str, Any], str]]] = {
    "openai_chat": (CHAT, {"model": "gpt-4o", "messages": [_USER], "stream_options": {"include_usage": True}}, "stop"),
    "openai_responses": ("/v1/responses", {"model": "gpt-4o", "input": [_USER]}, "completed"),
    "anthropic_messages": (
        "/v1/messages",
        {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [_USER]},
        "end_turn",
    ),
}
"""By format: the path, a request, and why the model stops."""
RECALLS: Final = Says("", [("r1", "search_conversation_history", {"query": "culprit"})])


@dataclass(frozen=True, slots=True)
class Traced:
    """A door, and the spans that it has written."""

    here: Proxied
    exporter: InMemorySpanExporter

    def ask(self, text: str = "hello", path: str = CHAT, model: str = "gpt-4o", **more: Any) -> int:
        """Send a prompt within a trace; its status."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        return asyncio.run(_post(self.here.url + path, json.dumps(body).encode(), **CONTEXT))[0]

    def spans(self, count: int) -> list[ReadableSpan]:
        """Wait for so many spans; the door ends some behind its answer. In the order in which they began."""
        until(lambda: len(self.exporter.get_finished_spans()) >= count)
        found = list(reversed(self.exporter.get_finished_spans()))  # what began at the same time: the outer one first
        assert count == len(found), [span.name for span in found]
        return sorted(found, key=lambda span: span.start_time or 0)


@contextlib.contextmanager
def traced(model: Model, *, genai: bool = False, **more: Any) -> Iterator[Traced]:
    """Serve a door whose spans stay in memory."""
    exporter = InMemorySpanExporter()
    running = assemble(
        TelemetryOptions(),
        resource=Resource({}),
        processor=lambda _: SimpleSpanProcessor(exporter),
        genai=genai,
    )
    try:
        with proxied(model, observer=running.observer, **more) as here:
            yield Traced(here, exporter)
    finally:
        running.stop()


def of(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Whether a span is the child of another one."""
    return span.parent is not None and parent.context is not None and span.parent.span_id == parent.context.span_id


def test_a_request_within_its_agents_trace() -> None:
    """The door's span is the child of the agent's; below it are the prompt, and the provider's call."""
    with traced(scripted(Says("Hello."))) as telemetry:
        assert 200 == telemetry.ask()
        request, trim, call = telemetry.spans(3)
        (sent,) = telemetry.here.upstream.sent
        base = telemetry.here.upstream
    assert ("POST chat_completions", "trim", "chat gpt-4o") == (request.name, trim.name, call.name)
    assert (SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT) == (request.kind, trim.kind, call.kind)
    assert request.parent is not None
    assert (TRACE, PARENT, True) == (request.parent.trace_id, request.parent.span_id, request.parent.is_remote)
    assert below(trim, request)
    assert below(call, request)
    run_id = of(trim)["prompt_sidecar.run.id"]
    assert {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": CHAT,
        "prompt_sidecar.http.route": "chat_completions",
        "prompt_sidecar.http.outcome": "answered",
        "prompt_sidecar.http.hidden_turns": 0,
        "prompt_sidecar.caller": "local",
        "prompt_sidecar.run.id": run_id,
    } == of(request)
    assert {
        spans.OPERATION: "chat",
        spans.PROVIDER: "openai",
        spans.REQUEST_MODEL: "gpt-4o",
        spans.CONVERSATION: run_id,
        spans.INPUT_TOKENS: TOKENS["input"],
        spans.CACHE_READ_TOKENS: TOKENS["cached"],
        spans.OUTPUT_TOKENS: TOKENS["output"],
        spans.FINISH: ("stop",),
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": base.port,
        "prompt_sidecar.run.id": run_id,
        "prompt_sidecar.http.turn": 0,
        "prompt_sidecar.http.hidden": False,
    } == of(call)
    assert {StatusCode.UNSET} == {span.status.status_code for span in (request, trim, call)}
    assert not {"traceparent", "tracestate", "baggage"} & {name.lower() for name in sent.headers}


@pytest.mark.parametrize("sampled", ["01", "00"])
def test_a_provider_gets_the_trace_where_the_setting_says_so(sampled: str) -> None:
    """By the span of its call, never with the agent's own state and baggage; sampled as the agent has it."""
    context = CONTEXT | {"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-{sampled}"}
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}).encode()
    with traced(scripted(Says("Hello.")), traceparent="send") as telemetry:
        asyncio.run(_post(telemetry.here.url + CHAT, body, **context))
        headers = {name.lower(): value for name, value in telemetry.here.upstream.sent[0].headers.items()}
        written = telemetry.spans(3 if sampled == "01" else 0)
    found = re.fullmatch(f"00-{TRACE:032x}-([0-9a-f]{{16}})-{sampled}", headers["traceparent"])
    assert found is not None
    assert f"{PARENT:016x}" != found[1]
    assert not {"tracestate", "baggage"} & set(headers)
    if written:
        assert written[-1].context is not None
        assert f"{written[-1].context.span_id:016x}" == found[1]


def test_without_spans_a_trace_goes_on_as_the_setting_says() -> None:
    """The agent's own header passes, or not; its state and baggage never."""
    for setting, goes in (("send", True), ("drop", False)):
        body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}).encode()
        with proxied(scripted(Says("Hello.")), traceparent=setting) as here:
            asyncio.run(_post(here.url + CHAT, body, **CONTEXT))
            headers = {name.lower(): value for name, value in here.upstream.sent[0].headers.items()}
        assert (CONTEXT["traceparent"] if goes else None) == headers.get("traceparent")
        assert not {"tracestate", "baggage"} & set(headers)


@pytest.mark.parametrize("stream", [False, True])
def test_a_hidden_turn_is_in_the_request_s_trace(stream: bool) -> None:
    """Each call of the provider is a span with what it took, between them the tool's call and the next prompt."""
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    with traced(scripted(RECALLS, Says("Done.")), genai=True) as telemetry:
        assert 200 == telemetry.ask(tools=tools, stream=stream, stream_options={"include_usage": True})
        request, *rest = telemetry.spans(7)
    names = ["trim", "chat gpt-4o", "execute_tool search_conversation_history", "search_memory", "trim", "chat gpt-4o"]
    assert names == [span.name for span in rest]
    assert all(below(span, request) for span in rest if span.name != "search_memory")
    calls = [of(span) for span in rest if span.kind is SpanKind.CLIENT]
    assert [(0, True), (1, False)] == [
        (call["prompt_sidecar.http.turn"], call["prompt_sidecar.http.hidden"]) for call in calls
    ]
    assert [TOKENS["input"]] * 2 == [call[spans.INPUT_TOKENS] for call in calls]
    assert [stream, stream] == [call.get(spans.STREAM, False) for call in calls]
    assert [stream, stream] == [call.get(spans.FIRST_CHUNK, -1.0) >= 0 for call in calls]
    assert [("tool_calls",), ("stop",)] == [call[spans.FINISH] for call in calls]
    assert "r1" == of(rest[2])[spans.TOOL_CALL]
    assert 1 == of(request)["prompt_sidecar.http.hidden_turns"]
    assert of(request)["prompt_sidecar.run.id"] == of(request)[spans.CONVERSATION]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [*REQUESTS])
def test_an_api_says_why_the_model_stopped(name: str, *, stream: bool) -> None:
    """Whole and streamed, in the provider's own word, with the tokens that it counted."""
    path, body, reason = REQUESTS[name]
    with traced(scripted(Says("Hello."))) as telemetry:
        sent = json.dumps(body | ({"stream": True} if stream else {})).encode()
        assert 200 == asyncio.run(_post(telemetry.here.url + path, sent, **CONTEXT))[0]
        call = telemetry.spans(3)[-1]
    assert SpanKind.CLIENT is call.kind
    assert (reason,) == of(call)[spans.FINISH]
    assert TOKENS["input"] == of(call)[spans.INPUT_TOKENS], "cached ones included, whatever the provider calls input"
    assert TOKENS["output"] == of(call)[spans.OUTPUT_TOKENS]
    assert stream == of(call).get(spans.STREAM, False)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gemini", "STOP"), ("gemini-sse", "STOP"), ("bedrock", "end_turn"), ("bedrock-stream", "end_turn")],
)
def test_apis_whose_path_names_the_model_say_it_too(name: str, reason: str) -> None:
    """By the same attributes."""
    way = WAYS[name]
    agent = PathAgent(way, "")
    agent.add_user_text("hello")
    with traced(scripted()) as telemetry:
        telemetry.here.upstream.other = PathUpstream(scripted(Says("Hello.")), way)
        assert 200 == asyncio.run(_post(telemetry.here.url + way.path, agent.body(), **CONTEXT))[0]
        call = telemetry.spans(3)[-1]
    assert (reason,) == of(call)[spans.FINISH]
    assert TOKENS["input"] == of(call)[spans.INPUT_TOKENS]
    assert TOKENS["output"] == of(call)[spans.OUTPUT_TOKENS]


def test_a_reason_that_is_not_known_is_not_written() -> None:
    """An answer is untrusted: any text may stand there."""
    for api in APIS.values():
        assert api.finish_reasons
        assert ("", OTHER_REASON, OTHER_REASON) == tuple(map(api.finish_reason, ("", SECRET, ["a"])))


def test_a_refused_prompt_has_its_span() -> None:
    """With the reason; nothing was sent, so there is no call of the provider."""
    ceilings = Ceilings(run_model_calls=1, run_model_calls_action=CeilingAction.REFUSE)
    rules = Rules(CallerRules(preset("cache_first"), {}, ceilings), {}, Money(CeilingPrices({})))
    with traced(scripted(Says("Hello."), Says("Again.")), rules=rules) as telemetry:
        assert 200 == telemetry.ask()
        assert 400 <= telemetry.ask()
        refused = telemetry.spans(4)[-1]
    assert ("POST chat_completions", SpanKind.SERVER) == (refused.name, refused.kind)
    assert ("refused", "RUN_CEILING") == (of(refused)["prompt_sidecar.http.outcome"], of(refused)["error.type"])
    assert StatusCode.UNSET is refused.status.status_code


@pytest.mark.parametrize(("status", "of_request"), [(429, StatusCode.UNSET), (503, StatusCode.ERROR)])
def test_a_provider_that_fails(status: int, of_request: StatusCode) -> None:
    """Its call is an error by its status; the request's span is one where the agent gets a 5xx."""
    with traced(scripted(Says("no", status=status))) as telemetry:
        assert status == telemetry.ask()
        request, _, call = telemetry.spans(3)
    assert (str(status), StatusCode.ERROR) == (of(call)["error.type"], call.status.status_code)
    assert of_request is request.status.status_code
    assert status == of(request)["http.response.status_code"]


def test_a_provider_that_cannot_be_reached() -> None:
    """Both spans are errors."""
    with traced(scripted()) as telemetry:

        async def gone(request: web.Request) -> Any:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        telemetry.here.upstream.other, telemetry.here.upstream.only_other = gone, True
        assert 502 == telemetry.ask()
        request, _, call = telemetry.spans(3)
    assert ("ServerDisconnectedError", StatusCode.ERROR) == (of(call)["error.type"], call.status.status_code)
    assert ("UPSTREAM_UNREACHABLE", StatusCode.ERROR) == (of(request)["error.type"], request.status.status_code)


def test_no_text_of_a_prompt() -> None:
    """Neither of the prompt, nor of a model's name that is not known, nor of a path that is no API's."""
    with traced(scripted(Says(SECRET))) as telemetry:

        async def other(_: Any) -> Any:
            raise ConnectionError

        telemetry.here.upstream.other = other
        telemetry.ask(SECRET, model=SECRET)
        telemetry.ask(SECRET, path=f"/v1/{SECRET}?key={SECRET}")
        written = telemetry.spans(4)
    assert "chat" == written[2].name
    assert "POST passed_through" == written[3].name
    assert SECRET not in "".join(span.to_json() for span in written)


def test_an_agent_of_many_calls_has_one_trace() -> None:
    """Its own: each request's spans are within it, and none begins another."""
    with traced(scripted(*[Says("Hello.")] * 4)) as telemetry:
        for number in range(4):
            telemetry.ask(f"hello {number}")
        written = telemetry.spans(12)
    assert {TRACE} == {span.context.trace_id for span in written if span.context is not None}


def test_a_request_on_a_websocket() -> None:
    """Each `response.create` has a span in the trace that the WebSocket was opened with."""
    exporter = InMemorySpanExporter()
    running = assemble(TelemetryOptions(), resource=Resource({}), processor=lambda _: SimpleSpanProcessor(exporter))
    model = scripted(Says("Hello."), Says("Hello again."))
    with contextlib.closing(_Stops(running)), proxied(model, observer=running.observer) as here:
        here.upstream.other = socket_provider.SocketProvider(model, here.upstream).opened

        async def does(socket: Any) -> None:
            await answered(socket, create(user("Hi.")))
            await answered(socket, create(user("Ho.")))

        agent(here, does, **CONTEXT)
        found = Traced(here, exporter).spans(6)
    requests = [span for span in found if span.kind is SpanKind.SERVER]
    assert ["response.create responses"] * 2 == [span.name for span in requests]
    assert {(TRACE, PARENT)} == {
        (span.parent.trace_id, span.parent.span_id) for span in requests if span.parent is not None
    }
    calls = [span for span in found if span.kind is SpanKind.CLIENT]
    assert [True, True] == [below(call, request) for call, request in zip(calls, requests, strict=True)]
    assert "http.request.method" not in of(requests[0])


@dataclass(frozen=True, slots=True)
class _Stops:
    """Telemetry that is stopped when it is closed."""

    running: Any

    def close(self) -> None:
        """Stop it."""
        self.running.stop()


SENT: Final[Mapping[str, str]] = {
    spans.OPERATION: "gen_ai.operation.name",
    spans.PROVIDER: "gen_ai.provider.name",
    spans.CONVERSATION: "gen_ai.conversation.id",
    spans.REQUEST_MODEL: "gen_ai.request.model",
    spans.STREAM: "gen_ai.request.stream",
    spans.RESPONSE_MODEL: "gen_ai.response.model",
    spans.FIRST_CHUNK: "gen_ai.response.time_to_first_chunk",
    spans.INPUT_TOKENS: "gen_ai.usage.input_tokens",
    spans.OUTPUT_TOKENS: "gen_ai.usage.output_tokens",
    spans.CACHE_READ_TOKENS: "gen_ai.usage.cache_read.input_tokens",
    spans.FINISH: "gen_ai.response.finish_reasons",
    spans.COMPACTED: "gen_ai.conversation.compacted",
    spans.CACHE_WRITE_TOKENS: "gen_ai.usage.cache_write.input_tokens",
    spans.CACHE_CREATION_TOKENS: "gen_ai.usage.cache_creation.input_tokens",
}
"""Attributes of the span `gen_ai.client.inference` of the conventions for generative AI, 0.1.0, that ours has."""
NOT_SENT: Final = {
    "gen_ai.output.type",
    "gen_ai.prompt.name",
    "gen_ai.prompt.version",
    "gen_ai.request.choice.count",
    "gen_ai.request.frequency_penalty",
    "gen_ai.request.max_tokens",
    "gen_ai.request.presence_penalty",
    "gen_ai.request.previous_response.id",
    "gen_ai.request.reasoning.level",
    "gen_ai.request.seed",
    "gen_ai.request.stop_sequences",
    "gen_ai.request.temperature",
    "gen_ai.request.top_k",
    "gen_ai.request.top_p",
    "gen_ai.response.id",
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
}
"""Attributes that it has not: the agent's own span has what it asked for, and text of prompts is in no span."""


def test_the_conventions_table() -> None:
    """Names are the conventions' own, and the page has each that is written, and each that is not."""
    assert all(ours == theirs for ours, theirs in SENT.items())
    page = PAGE.read_text(encoding="utf-8")
    assert [] == [name for name in (*SENT, *NOT_SENT) if f"`{name}`" not in page]
    assert spans.SCHEMA in page
    assert spans.SCHEMA == resource({}).schema_url
    with traced(scripted(Says("Hello."))) as telemetry:
        telemetry.ask(stream=True, stream_options={"include_usage": True})
        request, _, call = telemetry.spans(3)
    assert {name for name in of(call) if name.startswith("gen_ai.")} <= set(SENT)
    assert call.instrumentation_scope is not None
    assert (
        spans.SCHEMA
        == call.instrumentation_scope.schema_url
        == getattr(request.instrumentation_scope, "schema_url", "")
    )
