"""What is refused, and what providers answer, is counted alike whichever door it came through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import grpc
import pytest
from aiohttp import web

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import GuardRefused, RunCeiling, TooLarge
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.v1 import run_pb2, usage_pb2
from tests.client.provider import Says
from tests.doors.envoy.test_door import body as envoy_body
from tests.doors.envoy.test_door import door as envoy_door
from tests.doors.envoy.test_door import failing, headers
from tests.doors.envoy.through import chat
from tests.doors.grpc.serving import core_of
from tests.doors.http.serving import KEY, Proxied, proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import scripted
from tests.telemetry.watched import Figures, prompt, prompt_of, telling, watched
from tests.waiting import PATIENCE

GENERAL: Final = CallerRules(
    preset("cache_first"), {}, Ceilings(run_model_calls=1, run_model_calls_action=CeilingAction.REFUSE)
)
ONE_CALL: Final = Rules(GENERAL, {}, Money(CeilingPrices({})))
GUARDRAIL: Final = "/beta/litellm_basic_guardrail_api"


def through_http(doing: Callable[[Proxied], None], *says: Says, **settings: Any) -> Figures:
    """The figures of a sidecar once something was done through its HTTP door."""
    with telling() as telemetry:
        with proxied(scripted(*says), observer=telemetry.observer, grace=PATIENCE, **settings) as here:
            doing(here)
        return telemetry.scrape()


def ask(here: Proxied, text: str = "hello", path: str = "/v1/chat/completions", **more: Any) -> int:
    """Send a prompt; its status."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], **more}
    return asyncio.run(_post(here.url + path, json.dumps(body).encode()))[0]


def failing_core(error: BaseException) -> Runs:
    """A core that fails each prompt so."""

    class Failing(Runs):
        def trim(self, *_: object) -> Any:
            raise error

    return core_of(Failing, lambda: 0.0, key=KEY)


def test_refusals_of_the_guard_through_http() -> None:
    """Each of them, also where the sidecar's answer says so with status 200, as to a gateway."""

    def refused(here: Proxied) -> None:
        assert 400 == ask(here)

    def blocked(here: Proxied) -> None:
        sent = {"input_type": "request", "structured_messages": [{"role": "user", "content": "hi"}]}
        assert 200 == asyncio.run(_post(here.url + GUARDRAIL, json.dumps(sent).encode()))[0]

    for route, doing in (("chat_completions", refused), ("guardrail", blocked)):
        figures = through_http(doing, core=failing_core(GuardRefused("no")))
        assert 1 == figures.of(catalog.GUARD_REFUSALS)
        assert 1 == figures.of(catalog.HTTP_REQUESTS, route=route, outcome="refused")


@pytest.mark.parametrize("stream", [False, True])
def test_a_ceiling_through_http(*, stream: bool) -> None:
    """It refuses the prompt of a hidden turn too, where a stream has begun: its request is not counted as answered."""
    own = Says("Wait.", [("own-1", "search_conversation_history", {"query": "x"})])
    tools = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]

    def refused(here: Proxied) -> None:
        for status in (200 if stream else 400, 400):
            assert status == ask(here, path="/v1/messages", max_tokens=9, stream=stream, tools=tools)

    figures = through_http(refused, own, rules=ONE_CALL, window=100_000)
    assert 2 == figures.of(catalog.CEILINGS_PASSED, scope="run", kind="model_calls", action="refuse")
    assert 2 == figures.of(catalog.HTTP_REQUESTS, outcome="refused") == figures.of(catalog.HTTP_REQUESTS)


def test_a_refused_prompt_counts_for_the_model_that_its_body_names() -> None:
    """Through each door: of a ceiling, whose refusal comes after the prompt was read."""

    def refused(here: Proxied) -> None:
        for status in (200, 400):
            assert status == ask(here, model="gpt-4o")

    figures = through_http(refused, Says("hi"), rules=ONE_CALL, window=100_000)
    assert (
        1
        == figures.of(catalog.PROMPTS, outcome="refused", model="gpt-4o")
        == figures.of(catalog.PROMPTS, outcome="refused")
    )
    with watched(rules=ONE_CALL) as seen:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
        seen.served.stub.TrimPrompt(prompt_of(body))
        with pytest.raises(grpc.RpcError):
            seen.served.stub.TrimPrompt(prompt_of(body))
        assert 1 == seen.scrape().of(catalog.PROMPTS, outcome="refused", model="gpt-4o")


def test_refusals_through_envoy() -> None:
    """Of the guard and of ceilings, and a bound that lets a prompt pass as it came."""
    errors = (
        GuardRefused("no"),
        RunCeiling("no", scope="run", kind="model_calls"),
        TooLarge("no", bound="limits.run_messages"),
    )
    counted = (catalog.GUARD_REFUSALS, catalog.CEILINGS_PASSED, catalog.BOUND_HITS)
    for at, (error, outcome) in enumerate(zip(errors, ("refused", "refused", "too_large"), strict=True)):
        with telling() as telemetry:
            with envoy_door(core=failing(error), observed_by=telemetry.observer) as asked:
                asked.process(headers(), envoy_body(chat(1, "a result")))
            figures = telemetry.scrape()
        assert [float(at == each) for each in range(3)] == [figures.of(metric) for metric in counted]
        assert 1 == figures.of(catalog.ENVOY_REQUESTS, outcome=outcome)


def test_a_bound_of_the_core_counts_once_through_each_door() -> None:
    """Though an error passes several places on its way."""
    limits = Limits(run_messages=1, default_window=100_000)
    sent = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]

    def reached(here: Proxied) -> None:
        body = json.dumps({"model": "scripted", "messages": [*sent, {"role": "user", "content": "three"}]})
        assert 200 == asyncio.run(_post(f"{here.url}/v1/chat/completions", body.encode()))[0]

    assert 1 == through_http(reached, Says("hi"), limits=limits).of(catalog.BOUND_HITS, bound="limits.run_messages")
    with watched(limits=limits) as seen:
        with pytest.raises(grpc.RpcError):
            seen.served.stub.TrimPrompt(prompt(2))
        assert 1 == seen.scrape().of(catalog.BOUND_HITS, bound="limits.run_messages")


def test_want_of_memory_is_counted_and_reported_through_http() -> None:
    """As through gRPC: the prompt goes on, and the bound says why."""
    figures = through_http(
        lambda here: check_untrimmed(here, "overloaded"), Says("hi"), core=failing_core(MemoryError())
    )
    assert 1 == figures.of(catalog.BOUND_HITS, bound="limits.process_bytes")
    assert 1 == figures.of(catalog.HTTP_REQUESTS, outcome="failed_open")


def check_untrimmed(here: Proxied, reason: str) -> None:
    """Send a prompt that goes on untrimmed for a reason."""
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}).encode()
    status, _, headers = asyncio.run(_post(f"{here.url}/v1/chat/completions", body))
    assert (200, reason) == (status, headers["x-prompt-sidecar-untrimmed"])


def test_requests_that_are_not_admitted_are_refused_and_not_failed() -> None:
    """As there are too many, or as a body is too long: the sidecar has no fault, and nobody is woken."""

    def refused(here: Proxied) -> None:
        assert 413 == ask(here, "x" * 2_000_000)

    figures = through_http(refused, max_body_bytes=1_048_576)
    assert (1, 1) == (figures.of(catalog.HTTP_REQUESTS, outcome="refused"), figures.of(catalog.HTTP_REQUESTS))
    assert 1 == figures.of(catalog.BOUND_HITS, bound="http.max_body_bytes")
    figures = through_http(lambda here: asyncio.run(beyond_its_places(here)), max_requests=1)
    assert 1 == figures.of(catalog.HTTP_REQUESTS, outcome="refused")
    assert 1 == figures.of(catalog.BOUND_HITS, bound="http.max_requests")
    assert 0 == figures.of(catalog.HTTP_REQUESTS, outcome="failed")


async def beyond_its_places(here: Proxied) -> None:
    """Send a second request while the only place is taken."""
    come, go, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    async def answer(_: web.Request) -> web.Response:
        loop.call_soon_threadsafe(come.set)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return web.json_response({})

    here.upstream.other = answer
    first = asyncio.ensure_future(_post(f"{here.url}/v1/models/a", b""))
    await come.wait()
    assert 503 == (await _post(f"{here.url}/v1/models/b", b""))[0]
    go.set()
    assert 200 == (await first)[0]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "answered"), (400, "upstream_refused"), (429, "upstream_refused"), (500, "upstream_failed")],
)
def test_what_a_provider_says(status: int, outcome: str) -> None:
    """Its errors are no answers."""
    figures = through_http(lambda here: equal(status, ask(here)), Says("hi", status=status))
    assert 1 == figures.of(catalog.HTTP_REQUESTS, outcome=outcome) == figures.of(catalog.HTTP_REQUESTS)
    assert 1 == figures.of(catalog.HTTP_UPSTREAM, status=f"{status // 100}xx")


def equal(expected: int, found: int) -> None:
    """Assert it, within an expression."""
    assert expected == found


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
def test_an_answer_that_breaks_off_is_a_provider_that_failed(path: str) -> None:
    """With status 200, in the middle of a stream, of a prompt or of what passes through."""

    async def broken(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        assert request.transport is not None
        request.transport.abort()
        return response

    def ask_for_it(here: Proxied) -> None:
        here.upstream.other, here.upstream.only_other = broken, True
        with pytest.raises(aiohttp.ClientError):
            ask(here, path=path, stream=True)

    figures = through_http(ask_for_it)
    assert 1 == figures.of(catalog.HTTP_REQUESTS, outcome="upstream_failed") == figures.of(catalog.HTTP_REQUESTS)


def long_prompt(here: Proxied) -> int:
    """Send a prompt from which something is taken."""
    return asyncio.run(_post(f"{here.url}/v1/chat/completions", chat(8, "a line of a log, and another one\n" * 200)))[0]


def test_retries_that_fail_save_nothing() -> None:
    """A provider that fails five times and then answers: the prompt is counted once, however often it is sent."""

    def once(here: Proxied) -> None:
        assert 200 == long_prompt(here)

    def again_and_again(here: Proxied) -> None:
        for _ in range(5):
            assert 500 == long_prompt(here)
        assert 200 == long_prompt(here)

    failures = [Says("busy", status=500)] * 5
    plain = through_http(once, Says("hi"))
    retried = through_http(again_and_again, *failures, Says("hi"))
    for metric in (
        catalog.PROMPT_TOKENS,
        catalog.PREFIX_TOKENS,
        catalog.HISTORY_TOKENS,
        catalog.OWN_TEXT_TOKENS,
        catalog.COMPARED_TOKENS,
        catalog.COMPARED_PROMPTS,
        catalog.TRIMMED_TOKENS,
    ):
        assert plain.of(metric) == retried.of(metric), metric.name
    saved = [plain.of(catalog.PROMPT_TOKENS, state=state) for state in ("before", "after")]
    assert saved[0] > saved[1] > 0
    assert (1, 6) == (plain.of(catalog.PROMPTS), retried.of(catalog.PROMPTS))


@pytest.mark.parametrize(("reported", "times"), [(False, 1), (True, 2)])
def test_a_prompt_that_was_answered_counts_again_when_it_is_sent_again(*, reported: bool, times: int) -> None:
    """A report says that the provider has counted it; without one it counts once, through gRPC too."""
    with watched() as seen:
        for _ in range(2):
            answer = seen.served.stub.TrimPrompt(prompt(12))
            if reported:
                used = usage_pb2.ReportUsageRequest(run_id="run", input_tokens=answer.tokens.after)
                seen.served.stub.ReportUsage(used)
        figures = seen.scrape()
        run = seen.served.stub.GetRun(run_pb2.GetRunRequest(run_id="run")).run
    before, after = (figures.of(catalog.PROMPT_TOKENS, state=state) for state in ("before", "after"))
    assert (times * answer.tokens.before, times * answer.tokens.after) == (before, after)
    assert before > after
    assert times == figures.of(catalog.COMPARED_PROMPTS) == run.comparison.prompts + run.comparison.refused
    assert 2 == figures.of(catalog.PROMPTS) == run.calls
    assert (before, after) == (run.tokens_sent_total, run.tokens_returned_total)
