"""Figures of providers' calls and of requests at a real HTTP door, ours and those of OpenTelemetry's conventions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from aiohttp import web
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics as packaged
from opentelemetry.semconv.metrics.http_metrics import HTTP_SERVER_REQUEST_DURATION

from prompt_sidecar.facts.http_calls import CANCELLED, CallOutcome, ProviderAnswered, ProviderAsked
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.labels import ModelNames
from prompt_sidecar.telemetry.provider_calls import UNKNOWN_ERROR, recorded
from tests.client.provider import TOKENS, Says
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import Model, scripted
from tests.telemetry.watched import Figures, telling
from tests.waiting import until

CHAT: Final = "/v1/chat/completions"
RECALLS: Final = Says("", [("r1", "search_conversation_history", {"query": "culprit"})])
TOOLS: Final = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
OF_CHAT: Final = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
}


def ask(here: Proxied, path: str = CHAT, model: str = "gpt-4o", **more: Any) -> int:
    """Send a prompt; its status."""
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **more}
    return asyncio.run(_post(here.url + path, json.dumps(body).encode()))[0]


def figures_of(model: Model, *asks: dict[str, Any], other: Any = None) -> Figures:
    """Ask a door whose provider is this model, and scrape it once all its calls are counted."""
    with telling() as telemetry, proxied(model, observer=telemetry.observer) as here:
        if other is not None:
            here.upstream.other, here.upstream.only_other = other, True
        for each in asks:
            ask(here, **each)
        until(lambda: telemetry.scrape().of(catalog.PROVIDER_CALLS) >= len(asks))
        return telemetry.scrape()


def seconds_of(figures: Figures, name: str) -> Iterator[float]:
    """The bounds of a histogram's buckets."""
    found = {float(each.labels["le"]) for each in figures.samples if each.name == name + "_bucket"}
    yield from sorted(found)[:-1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_by_the_conventions(*, stream: bool) -> None:
    """Tokens by kind, duration, and of streams alone the time to the first piece and between two."""
    figures = figures_of(scripted(Says("Hello.")), {"stream": stream, "stream_options": {"include_usage": True}})
    assert 1 == figures.of(catalog.GENAI_DURATION, **OF_CHAT, **{"error.type": ""})
    assert stream == figures.of(catalog.GENAI_FIRST_CHUNK, **OF_CHAT)
    for kind in ("input", "output"):
        labels = {name.replace(".", "_"): value for name, value in OF_CHAT.items()} | {"gen_ai_token_type": kind}
        (total,) = [
            each.value
            for each in figures.samples
            if each.name == "gen_ai_client_token_usage_sum" and labels.items() <= each.labels.items() and each.value
        ]
        assert TOKENS[kind] == total
    if not stream:
        assert 0 == figures.of(catalog.GENAI_OUTPUT_CHUNK)


def test_cached_tokens_are_input_of_every_provider() -> None:
    """Anthropic counts them next to its input; in the figure they are a part of it, as the conventions have it."""
    ask_claude = {"path": "/v1/messages", "model": "claude-sonnet-4-5", "max_tokens": 9}
    figures = figures_of(scripted(Says("Hello.")), ask_claude)
    labels = {"gen_ai_provider_name": "anthropic", "gen_ai_token_type": "input"}
    (total,) = [
        each.value
        for each in figures.samples
        if each.name == "gen_ai_client_token_usage_sum" and labels.items() <= each.labels.items() and each.value
    ]
    assert TOKENS["input"] == total


def test_names_units_and_buckets_are_the_conventions() -> None:
    """By the constants of OpenTelemetry's package, and boundaries as its pages advise."""
    assert {
        packaged.GEN_AI_CLIENT_TOKEN_USAGE: "{token}",
        packaged.GEN_AI_CLIENT_OPERATION_DURATION: "s",
        packaged.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK: "s",
        packaged.GEN_AI_CLIENT_OPERATION_TIME_PER_OUTPUT_CHUNK: "s",
    } == {metric.name: metric.unit for metric in catalog.GENAI}
    assert HTTP_SERVER_REQUEST_DURATION == catalog.HTTP_SERVER_DURATION.name
    with telling() as telemetry:
        figures = telemetry.scrape()
    assert [4**power for power in range(14)] == list(seconds_of(figures, "gen_ai_client_token_usage"))
    times = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
    for name in ("duration", "time_to_first_chunk", "time_per_output_chunk"):
        assert times == list(seconds_of(figures, f"gen_ai_client_operation_{name}_seconds"))
    of_http = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
    assert of_http == list(seconds_of(figures, "http_server_request_duration_seconds"))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "answered"), (400, "refused"), (429, "rate_limited"), (503, "failed")],
)
def test_calls_by_status_and_route(status: int, outcome: str) -> None:
    """Each has its outcome, and its error where it has one; only what was answered has a time to its end."""
    figures = figures_of(scripted(Says("no", status=status)), {})
    route = {"route": "chat_completions", "turn": "shown"}
    assert 1 == figures.of(catalog.PROVIDER_CALLS, outcome=outcome, **route) == figures.of(catalog.PROVIDER_CALLS)
    assert 1 == figures.of(catalog.PROVIDER_FIRST_BYTE, **route)
    assert (status == 200) == figures.of(catalog.PROVIDER_DURATION, **route)
    error = "" if status == 200 else str(status)
    assert 1 == figures.of(catalog.GENAI_DURATION, **OF_CHAT, **{"error.type": error})
    served = {"http.request.method": "POST", "http.response.status_code": str(status), "url.scheme": "http"}
    wrong = str(status) if status >= 500 else ""
    assert 1 == figures.of(catalog.HTTP_SERVER_DURATION, **served, **{"error.type": wrong})


def test_a_provider_that_cannot_be_reached() -> None:
    """It has no answer, so no time to its first byte either."""

    async def gone(request: web.Request) -> Any:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    figures = figures_of(scripted(), {}, other=gone)
    assert 1 == figures.of(catalog.PROVIDER_CALLS, outcome="unreachable")
    assert 0 == figures.of(catalog.PROVIDER_FIRST_BYTE) == figures.of(catalog.PROVIDER_DURATION)
    assert 1 == figures.of(catalog.GENAI_DURATION, **{"error.type": "ServerDisconnectedError"})


def test_hidden_turns_are_apart() -> None:
    """The call whose tools the sidecar answered, and the one whose answer the agent got."""
    with telling() as telemetry, proxied(scripted(RECALLS, Says("Done.")), observer=telemetry.observer) as here:
        assert 200 == ask(here, tools=TOOLS)
        until(lambda: telemetry.scrape().of(catalog.PROVIDER_CALLS) == 2)
        figures = telemetry.scrape()
    for metric in (catalog.PROVIDER_CALLS, catalog.PROVIDER_FIRST_BYTE, catalog.PROVIDER_DURATION):
        assert [1, 1] == [figures.of(metric, turn=turn) for turn in ("hidden", "shown")]


def test_names_that_agents_make_up_add_no_series() -> None:
    """Neither models, nor methods, nor paths; the door's own pages are counted too."""
    asks = [{"model": f"made-up-{number}"} for number in range(5)]
    figures = figures_of(scripted(*[Says("Hello.")] * 5), *asks)
    labels = {each.labels["gen_ai_request_model"] for each in figures.samples if each.name.startswith("gen_ai_client")}
    assert {catalog.OTHER} == labels
    assert 5 == figures.of(catalog.GENAI_DURATION, **{"gen_ai.request.model": catalog.OTHER})


ASKED: Final = ProviderAsked("openai", "chat", "chat_completions", "gpt-4o", "run", "", 0, 0)


@pytest.mark.parametrize(
    ("answered", "outcome"),
    [
        (ProviderAnswered(200, 1.0), CallOutcome.ANSWERED),
        (ProviderAnswered(200, 1.0, error="upstream_failed"), CallOutcome.BROKEN_OFF),
        (ProviderAnswered(0, 1.0, error=CANCELLED), CallOutcome.ABANDONED),
        (ProviderAnswered(200, 1.0, error=CANCELLED), CallOutcome.CANCELLED),
        (ProviderAnswered(0, 1.0, error="TimeoutError"), CallOutcome.UNREACHABLE),
    ],
)
def test_how_calls_end(answered: ProviderAnswered, outcome: CallOutcome) -> None:
    """In one word each."""
    assert outcome is answered.outcome


def test_an_agent_that_leaves_has_waited() -> None:
    """Its wait counts as a time to the first byte, so that a provider that hangs is seen as slow."""
    values = {metric.name: value for metric, value, _ in recorded(ASKED, _left(30.0), ModelNames())}
    assert 30.0 == values[catalog.PROVIDER_FIRST_BYTE.name]


def _left(seconds: float) -> ProviderAnswered:
    return ProviderAnswered(0, seconds, error=CANCELLED)


def test_an_error_that_is_not_known_has_no_label() -> None:
    """A provider can invent statuses."""
    (row,) = [
        values
        for metric, _, values in recorded(ASKED, ProviderAnswered(599, 1.0, error="599"), ModelNames())
        if metric is catalog.GENAI_DURATION
    ]
    assert UNKNOWN_ERROR == row[-1]
