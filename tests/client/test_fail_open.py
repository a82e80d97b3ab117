"""What becomes of an agent when the sidecar is down, slow, or says no."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Client, ClientError, InvalidRequest, Refused, Unreachable
from prompt_sidecar.client.breaker import LONGEST_PAUSE
from prompt_sidecar.client.options import Options
from prompt_sidecar.client.schema import make
from prompt_sidecar.integrations.calls import restored
from tests.client.histories import history
from tests.client.serving import PATIENT, client_of, silent
from tests.doors.grpc.serving import serving

NOBODY = "127.0.0.1:1"
"""A port that nobody listens on."""
MESSAGES = history("openai_chat", 3)
LOOP: list[Any] = []
LOOP.append(LOOP)


def refused(address: str, prompt: Any = MESSAGES, **options: Any) -> ClientError:
    """How a client that fails closed is refused."""
    with Client(address, **({"deadline": PATIENT, "fail_open": False} | options)) as client:
        with pytest.raises(ClientError) as caught:
            client.trim("r", prompt)
        assert (0, 0) == (client.trimmed, client.untrimmed)
    return caught.value


@pytest.mark.parametrize("prompt", [MESSAGES, {"messages": MESSAGES}, json.dumps(MESSAGES), b"[]"])
def test_a_sidecar_that_is_down_costs_no_prompt(prompt: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The prompt comes back as it is, the very object; it is counted each time and logged once."""
    with Client(NOBODY, deadline=PATIENT, clock=lambda: 0.0) as client:
        for _ in range(3):
            made = client.trim("r", prompt)
            assert made.prompt is prompt
            assert (False, "as_given", None) == (made.trimmed, made.fallback, made.fits)
        assert (0, 3) == (client.trimmed, client.untrimmed)
        assert {"UNAVAILABLE": 2, "CIRCUIT_OPEN": 1} == client.untrimmed_by_reason
        assert {"as_given": 3} == client.fallbacks
    assert [("WARNING", f"prompts go to the model untrimmed: UNAVAILABLE, from {NOBODY}")] == [
        (record.levelname, record.message) for record in caplog.records if record.name == "prompt_sidecar.client"
    ]


def test_a_silent_sidecar_costs_the_deadline_alone() -> None:
    """One who takes the connection and says nothing costs the deadline, and no more."""
    with silent() as address:
        with Client(address, deadline=0.2) as client:
            assert "DEADLINE_EXCEEDED" == client.trim("r", MESSAGES).reason
        error = refused(address, deadline=0.2)
    assert (Unreachable, "DEADLINE_EXCEEDED") == (type(error), error.code)


def test_back_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same client trims again when a sidecar is back, and says that it does."""
    caplog.set_level(logging.INFO, "prompt_sidecar.client")
    socket = ServerOptions(listen="", socket=str(tmp_path / "s"), sweep_interval=3_600)
    seconds = itertools.count(0, LONGEST_PAUSE)
    with Client(f"unix:{tmp_path}/s", deadline=PATIENT, clock=lambda: float(next(seconds))) as client:
        with serving(socket):
            assert client.trim("r", MESSAGES).trimmed
        assert not client.trim("r", MESSAGES).trimmed
        with serving(socket):
            # gRPC leaves a pause between tries to connect; each of these calls tries for a while.
            tries = next(number for number in range(1, 200) if client.trim("r", MESSAGES).trimmed)
        assert (2, tries) == (client.trimmed, client.untrimmed)
    assert 1 == caplog.text.count("prompts are trimmed again")


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (b"{", "INVALID_JSON"),
        ([{"role": 7, "content": "\ud800"}], "INVALID_JSON"),
        ([{"role": "user", "content": object()}], "PROMPT_NOT_JSON"),
        ("\ud800", "PROMPT_NOT_JSON"),
        (LOOP, "PROMPT_NOT_JSON"),
    ],
)
def test_a_prompt_that_cannot_be_read(prompt: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """The provider may take it all the same, so that the agent goes on; closed, it is an error with the reason."""
    with client_of() as (client, served):
        made = client.trim("r", prompt)
        assert made.prompt is prompt
        assert (False, reason) == (made.trimmed, made.reason)
        error = refused(served.address, prompt)
    assert (InvalidRequest, reason) == (type(error), error.reason)
    assert "\ud800" not in caplog.text


def test_too_large() -> None:
    """A prompt that no message can carry, and one that the server will not take."""
    with client_of(max_message_bytes=1_000) as (client, served):
        assert "RESOURCE_EXHAUSTED" == client.trim("r", [{"role": "user", "content": "x" * 2_000}]).reason
        error = refused(served.address, [{"role": "user", "content": "x" * 2_000}], max_message_bytes=1_000)
    assert (Refused, "RESOURCE_EXHAUSTED") == (type(error), error.code)


def test_other_methods_fail_closed() -> None:
    """Nothing can stand in for what the sidecar knows, so that they raise in any case."""
    with Client(NOBODY, deadline=PATIENT) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.retrieve("r", "id"),
            lambda: client.search("r", "words"),
            lambda: client.list_tasks("r"),
            client.list_tools,
            lambda: client.call_tool("r", "update_task", {}),
            lambda: client.report_usage("r", input_tokens=1),
            lambda: client.get_run("r"),
            lambda: client.end_run("r"),
            client.end_runs,
        ]
        for call in calls:
            with pytest.raises(Unreachable):
                call()
            client._breaker._answered()  # noqa: SLF001  # each is to find nobody by itself
        assert 0 == client.untrimmed


class Flaky(grpc.GenericRpcHandler):
    """A server that says UNAVAILABLE some times before it answers, and keeps what came with the last call."""

    def __init__(self, failures: int, answer: Any) -> None:
        self.failures = failures
        self.calls = 0
        self.metadata: dict[str, Any] = {}
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Every method."""
        self.metadata = dict(handler_call_details.invocation_metadata or ())

        def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls += 1
            if self.calls <= self.failures:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return bytes(self._answer.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def flaky(failures: int, answer: Any = None) -> Iterator[tuple[Flaky, str]]:
    """Such a server and its address."""
    with ThreadPoolExecutor(2) as pool:
        handler = Flaky(failures, answer if answer is not None else make("TrimPromptResponse"))
        server = grpc.server(pool, handlers=[handler], options=[("grpc.max_receive_message_length", -1)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield handler, f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


@pytest.mark.parametrize(("failures", "trimmed"), [(2, True), (3, False)])
def test_a_call_that_found_nobody_is_retried_twice(failures: int, trimmed: bool) -> None:
    """Two retries of a call that found nobody, of prompts larger than gRPC keeps by itself too; not a third."""
    with flaky(failures) as (handler, address), Client(address, deadline=PATIENT) as client:
        assert trimmed == client.trim("r", [{"role": "user", "content": "x" * 1_000_000}]).trimmed
        assert 3 == handler.calls


@pytest.mark.parametrize(
    ("pointer", "value"), [("/7", b"1"), ("/-1", b"1"), ("/0", b"[" * 100_000), ("", b"1"), ("", b"{}"), ("", b"null")]
)
def test_edits_that_do_not_fit(pointer: str, value: bytes) -> None:
    """No prompt goes out half edited, or as something that is none, whoever answers."""
    answer = make("TrimPromptResponse", edits=[{"operation": "replace", "pointer": pointer, "value": value}])
    with flaky(0, answer) as (_, address):
        with Client(address, deadline=PATIENT) as client:
            made = client.trim("r", MESSAGES)
            assert made.prompt is MESSAGES
            assert "EDITS_DO_NOT_APPLY" == made.reason
        assert "EDITS_DO_NOT_APPLY" == refused(address).reason


@pytest.mark.parametrize(
    ("run_id", "header"), [("run 1/ä", "run%201/%C3%A4"), ("a run: 1%", "a run: 1%"), ("Lauf ☃", "Lauf%20%E2%98%83")]
)
def test_the_run_goes_along_as_metadata(run_id: str, header: str) -> None:
    """For a load balancer, with every call of a run; escaped where no header could carry it. Other calls have none."""
    with flaky(0) as (handler, address), Client(address, deadline=PATIENT) as client:
        client.trim(run_id, MESSAGES)
        assert header == handler.metadata["x-prompt-sidecar-run"]
        handler.metadata = {}
        client.end_run(run_id)
        assert header == handler.metadata["x-prompt-sidecar-run"]
        with pytest.raises(Refused):  # it has none
            client.list_tools()
        assert "x-prompt-sidecar-run" not in handler.metadata


def test_trace_context_and_token_go_along() -> None:
    """From the agent's own function, W3C's two headers and no others; the token where there is one."""
    headers = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "v=1", "baggage": "secret=1"}
    with flaky(0) as (handler, address):
        with Client(address, deadline=PATIENT, token="t0ken", trace_context=lambda: headers) as client:
            client.trim("r", [])
            assert "t0ken" not in repr(client.options)
        assert headers["traceparent"] == handler.metadata["traceparent"]
        assert ("v=1", "Bearer t0ken") == (handler.metadata["tracestate"], handler.metadata["authorization"])
        assert "baggage" not in handler.metadata
        with Client(address, deadline=PATIENT) as client:
            client.trim("r", [])
        assert not {"traceparent", "tracestate", "authorization"} & set(handler.metadata)


def test_opentelemetrys_span_goes_along() -> None:
    """Where the agent traces with OpenTelemetry, the sidecar continues its current span."""
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("test")
    with flaky(0) as (handler, address), Client(address, deadline=PATIENT) as client:
        with tracer.start_as_current_span("agent") as span:
            client.trim("r", [])
        ids = span.get_span_context()
        assert handler.metadata["traceparent"].startswith(f"00-{ids.trace_id:032x}-{ids.span_id:016x}-")


def test_opentelemetrys_metrics_tell_of_prompts_without_the_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the agent has metrics, the client's prompts are among them: a sidecar that is down cannot count them."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)  # a process can set one provider only
    with flaky(0) as (_, address), Client(address, deadline=PATIENT) as client:
        client.trim("r", [])
    with Client(NOBODY, deadline=PATIENT) as client:
        client.trim("r", [])
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    found = {
        (str(point.attributes["sent"]), str(point.attributes["code"])): point.value
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and point.attributes
    }
    assert "prompt_sidecar.client.prompts" == metric.name
    assert {("trimmed", "OK"): 1, ("as_given", "UNAVAILABLE"): 1} == found


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"deadline": 0}, "deadline"),
        ({"deadline": float("nan")}, "deadline"),
        ({"deadline": 1e9}, "deadline"),
        ({"max_message_bytes": 0}, "max_message_bytes"),
        ({"target": ""}, "target"),
        ({"fallback_bytes": -1}, "fallback_bytes"),
    ],
)
def test_options_out_of_their_bounds(wrong: dict[str, Any], word: str) -> None:
    """They are told when the client is made, with what would be accepted."""
    with pytest.raises(ValueError, match=word):
        Options(**wrong)


def test_an_answer_without_a_prompt() -> None:
    """Something else than a sidecar may answer: no empty prompt goes out."""
    with flaky(0) as (_, address), Client(address, deadline=PATIENT) as client:
        made = client.trim("r", b"[]")
        assert (b"[]", False, "NO_PROMPT") == (made.prompt, made.trimmed, made.reason)


def test_an_answer_with_a_prompt_that_cannot_be_read() -> None:
    """The agent's own goes out, and the answer says why; the newest messages alone are none that could."""
    answer = make("TrimPromptResponse", json_body=b"\xff")
    with flaky(0, answer) as (_, address), Client(address, deadline=PATIENT) as client:
        made = client.trim("r", "[]")
        assert ("[]", False, "BAD_ANSWER") == (made.prompt, made.trimmed, made.reason)
        assert {"BAD_ANSWER": 1} == client.untrimmed_by_reason
        with pytest.raises(Refused) as caught:
            client.trim("r", [], base_revision=b"1")
        assert "BAD_ANSWER" == caught.value.reason


@pytest.mark.parametrize("body", [b"1", b"[]", b"null", b"[" * 100_000])
def test_an_answer_with_a_prompt_of_another_kind(body: bytes) -> None:
    """A body becomes a body: anything else is an error of the client's kind."""
    with flaky(0, make("TrimPromptResponse", json_body=body)) as (_, address):
        with Client(address, deadline=PATIENT) as client, pytest.raises(Refused) as caught:
            client.trim("r", {"messages": []}, base_revision=b"1")
        assert "BAD_ANSWER" == caught.value.reason


def test_an_answer_with_a_time_that_no_calendar_has() -> None:
    """The other figures of a run can be read."""
    run = {"run_id": "r", "calls": 3, "started": {"seconds": 1 << 62}}
    with flaky(0, make("GetRunResponse", run=run)) as (_, address), Client(address, deadline=PATIENT) as client:
        figures = client.get_run("r")
        assert (None, 3) == (figures.started, figures.calls)


@pytest.mark.parametrize("calls", [[], [{"arguments": b"{}"}], [{"arguments": b"{}"}] * 3])
def test_an_answer_with_other_calls_than_were_asked_for(calls: list[Any]) -> None:
    """Which value is whose would be guessed: it is an error, and where a client fails open the masks stay."""
    asked = [("deploy", '{"a":1}'), ("deploy", '{"b":2}')]
    with flaky(0, make("RestoreSecretsResponse", calls=calls)) as (_, address):
        with Client(address, deadline=PATIENT) as client:
            with pytest.raises(Refused) as caught:
                client.restore_secrets("r", asked)
            assert "BAD_ANSWER" == caught.value.reason
            if len(calls) != 1:
                assert '{"a":1}' == restored(client, "r", *asked[0])
        with Client(address, deadline=PATIENT, fail_open=False) as client:
            if len(calls) != 1:
                with pytest.raises(Refused):
                    restored(client, "r", *asked[0])


@pytest.mark.parametrize("definitions", [b"", b"{}", b"[", b"\xff", b"[1]", b"[" * 100_000])
def test_an_answer_without_definitions_of_tools(definitions: bytes) -> None:
    """An error of the client's kind, which the loop fails open for; it is not kept."""
    answer = make("ListToolsResponse", tools_json=definitions)
    with flaky(0, answer) as (handler, address), Client(address, deadline=PATIENT) as client:
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                client.list_tools()
            assert "BAD_ANSWER" == caught.value.reason
        assert 2 == handler.calls


def test_a_token_that_no_header_carries() -> None:
    """It is told when the client is made, and is not shown."""
    with pytest.raises(ValueError, match="token") as caught:
        Options(token="sécret")
    assert "cret" not in str(caught.value)
