"""Lines of each door name run, caller, reason and rule as members, and warnings are not repeated within a minute."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from prompt_sidecar.calls.provider_states import SECONDS, ProviderStates
from prompt_sidecar.calls.refusals import Refusals
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.errors import GuardRefused
from prompt_sidecar.facts.http_calls import CANCELLED, ProviderAnswered, ProviderAsked
from prompt_sidecar.facts.log_lines import run_digest
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings
from prompt_sidecar.process.logs import REPEAT_SECONDS, Repeats, configure
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import assemble
from prompt_sidecar.telemetry.spans import current_ids
from prompt_sidecar.trim.presets import preset
from tests.client.provider import Says
from tests.doors.envoy.test_door import body as envoy_body
from tests.doors.envoy.test_door import door as envoy_door
from tests.doors.envoy.test_door import failing, headers
from tests.doors.envoy.through import chat
from tests.doors.http.serving import proxied
from tests.doors.http.test_passing import _post
from tests.doors.http.upstream import scripted
from tests.telemetry.test_http_spans import CONTEXT, PARENT, TRACE, of
from tests.telemetry.test_provider_calls import CHAT, ask
from tests.telemetry.watched import prompt, watched
from tests.waiting import until

ONE_CALL: Final = Rules(
    CallerRules(
        preset("cache_first"),
        {},
        Ceilings(run_model_calls=1, run_model_calls_action=CeilingAction.REFUSE),
    ),
    {},
    Money(CeilingPrices({})),
)


@contextmanager
def lines() -> Iterator[list[dict[str, Any]]]:
    """The lines that are logged within, as JSON; they are there when it is over."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream, found = io.StringIO(), list[dict[str, Any]]()
    configure("json", "info", current_ids, stream)
    try:
        yield found
    finally:
        root.handlers[:], root.level = before, level
        found += map(json.loads, stream.getvalue().splitlines())


def refused(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The line of a refused call."""
    (line,) = [each for each in found if each["logger"] == "prompt_sidecar.refused"]
    return line


def test_a_refusal_through_http() -> None:
    """With the run by its digest, the caller and the reason; none of them has to be read out of a sentence."""
    sent = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}).encode()
    with lines() as found, proxied(scripted(Says("Hello.")), rules=ONE_CALL) as here:
        for status in (200, 400):
            asked = _post(here.url + CHAT, sent, **{"x-prompt-sidecar-run": "my run"})
            assert status == asyncio.run(asked)[0]
    line = refused(found)
    expected = {"door": "http", "run": run_digest("my run"), "caller": "local", "reason": "RUN_CEILING"}
    assert expected == {name: line[name] for name in expected}
    assert "my run" not in json.dumps(found)


def test_a_refusal_through_grpc() -> None:
    """The same members, and the ids of the trace."""
    with lines() as found, watched(rules=ONE_CALL) as server:
        server.served.stub.TrimPrompt(prompt(0, run_id="my run"))
        with pytest.raises(grpc.RpcError):
            server.served.stub.TrimPrompt(prompt(1, run_id="my run"))
        (_, call) = server.spans()["prompt_sidecar.v1.SidecarService/TrimPrompt"]
    line = refused(found)
    assert call.context is not None
    assert (f"{call.context.trace_id:032x}", f"{call.context.span_id:016x}") == (line["trace_id"], line["span_id"])
    expected = {"door": "grpc", "run": run_digest("my run"), "caller": "local", "reason": "RUN_CEILING"}
    assert expected == {name: line[name] for name in expected}


def test_a_rule_that_refuses_is_named() -> None:
    """Through the HTTP door, whoever has written the rule."""
    with lines() as found:
        Refusals(9).log("http chat", GuardRefused("no", rule="github_token"), "FAILED_PRECONDITION", "peer")
    assert ("github_token", "GUARD_REFUSED") == (refused(found)["rule"], refused(found)["reason"])


def test_a_line_of_the_envoy_door() -> None:
    """A prompt that failed inside has its door."""
    with lines() as found, envoy_door(core=failing(RuntimeError("x"))) as asked:
        asked.process(headers(), envoy_body(chat(1, "a result")))
    assert {"envoy"} == {each["door"] for each in found if each["level"] == "error"}


def test_a_prompt_through_envoy_has_its_span() -> None:
    """Of kind server, in its agent's trace, with the prompt below it."""
    exporter = InMemorySpanExporter()
    running = assemble(TelemetryOptions(), resource=Resource({}), processor=lambda _: SimpleSpanProcessor(exporter))
    try:
        with envoy_door(observed_by=running.observer) as asked:
            asked.process(headers(traceparent=CONTEXT["traceparent"]), envoy_body(chat(1, "a result")))
    finally:
        running.stop()
    trim, request = exporter.get_finished_spans()
    assert ("POST chat_completions", SpanKind.SERVER, "trim") == (request.name, request.kind, trim.name)
    assert request.parent is not None
    assert (TRACE, PARENT) == (request.parent.trace_id, request.parent.span_id)
    assert trim.parent is not None
    assert request.context is not None
    assert request.context.span_id == trim.parent.span_id
    assert ("answered", CHAT) == (of(request)["prompt_sidecar.http.outcome"], of(request)["url.path"])


def test_a_warning_is_logged_once_a_minute() -> None:
    """And the next one says how many there were; others, and what is no warning, pass."""
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    passed: list[str] = []

    def log(level: int, words: str) -> None:
        record = logging.LogRecord("a", level, "f", 1, words, (), None)
        if repeats.filter(record):
            passed.append(record.getMessage())

    for _ in range(3):
        log(logging.WARNING, "down")
    log(logging.WARNING, "other")
    log(logging.INFO, "up")
    log(logging.INFO, "up")
    now[0] = REPEAT_SECONDS
    log(logging.WARNING, "down")
    assert ["down", "other", "up", "up", "down (2 more since the last such line)"] == passed


ASKED: Final = ProviderAsked("openai", "chat", "chat_completions", "gpt-4o", "run", "", 0, 0)


def test_a_provider_that_fails_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each change, and none twice a minute, however it goes up and down."""
    now = [0.0]
    states = ProviderStates(lambda: now[0])
    down, up = ProviderAnswered(0, 1.0, error="ClientConnectorError"), ProviderAnswered(200, 1.0)
    caplog.set_level(logging.INFO)
    for answered in (up, down, down, up, down, up, ProviderAnswered(0, 1.0, error=CANCELLED)):
        states.answered(ASKED, answered)
    words = ["the provider openai fails: unreachable (ClientConnectorError)", "the provider openai answers again"]
    assert words == [each.partition(";")[0] for each in caplog.messages]
    now[0] = SECONDS
    states.answered(ASKED, down)
    assert 3 == len(caplog.messages)


def test_a_provider_that_is_down_fills_no_log() -> None:
    """Through a real door: thirty requests that it cannot answer are one line."""
    with lines() as found, proxied(scripted(*[Says("no", status=503)] * 30)) as here:
        for _ in range(30):
            ask(here)
        until(lambda: not here.upstream.defects)
    warnings = [each for each in found if each["level"] in ("warning", "error")]
    assert [("openai", "failed", "503")] == [
        (each["provider"], each["reason"], each["error_type"]) for each in warnings if "provider" in each
    ]
