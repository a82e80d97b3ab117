"""Calls over a real socket: answers, errors with their details, bounds, deadlines and cancellation."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.doors.grpc.conversion.wire import length_delimited, write_slices
from prompt_sidecar.v1 import conversation_pb2, policy_pb2, retrieve_pb2, run_pb2, trim_pb2
from tests.doors.grpc.serving import (
    LATE,
    PATIENCE,
    REQUESTS,
    WIDE,
    Failure,
    Serving,
    failure,
    outlasted,
    request,
    serving,
)
from tests.telemetry.watched import prompt

MIB = 1 << 20


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    """One server for the tests that leave it as it was."""
    with serving() as running:
        yield running


def raw(served: Serving, method: str = "TrimPrompt") -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    """A method of the service, without stubs."""
    return served.channel.unary_unary(f"/prompt_sidecar.v1.SidecarService/{method}")


def health(served: Serving) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    """The health check, which has threads of its own."""
    return served.channel.unary_unary("/grpc.health.v1.Health/Check")


def test_a_prompt_comes_back_with_its_figures(served: Serving) -> None:
    """A prompt that fits comes back, is counted, and the run can be asked about and ended."""
    answer = served.stub.TrimPrompt(request("figures"))
    assert b'{"role":"user","content":"hello"}' in answer.json_body
    assert (True, 1) == (answer.fits, answer.iteration)
    assert 0 < answer.tokens.before <= answer.tokens.after <= answer.tokens.limit
    figures = served.stub.GetRun(run_pb2.GetRunRequest(run_id="figures")).run
    assert ("figures", 1) == (figures.run_id, figures.calls)
    assert answer.untrimmed == figures.untrimmed == "no_need"
    assert [("no_need", 1)] == [(each.outcome, each.count) for each in figures.handled]
    assert "offered" == figures.recall
    assert figures.started.ToSeconds() <= figures.last_seen.ToSeconds()
    ended = [served.stub.EndRun(run_pb2.EndRunRequest(run_id="figures")).ended for _ in range(2)]
    assert [True, False] == ended


def test_an_unknown_run_is_reported(served: Serving) -> None:
    """GetRun of a run that was never seen is NOT_FOUND with RUN_UNKNOWN; RetrieveContent says it as an outcome."""
    refused = failure(lambda: served.stub.GetRun(run_pb2.GetRunRequest(run_id="never")))
    assert ("NOT_FOUND", "RUN_UNKNOWN") == (refused.code, refused.reason)
    asked = retrieve_pb2.RetrieveContentRequest(run_id="never", stash_id="abcdefghij")
    assert retrieve_pb2.RETRIEVE_OUTCOME_RUN_UNKNOWN == served.stub.RetrieveContent(asked).outcome


def test_a_trimmed_prompt_has_no_reason(served: Serving) -> None:
    """It is counted as trimmed; a dry run says what would be, and is not counted."""
    asked = prompt(20, run_id="trimmed", recall_unavailable=True)
    answer = served.stub.TrimPrompt(asked)
    asked.dry_run = True
    dry = served.stub.TrimPrompt(asked)
    figures = served.stub.GetRun(run_pb2.GetRunRequest(run_id="trimmed")).run
    assert answer.trims
    assert "" == answer.untrimmed == dry.untrimmed == figures.untrimmed
    assert [("trimmed", 1)] == [(each.outcome, each.count) for each in figures.handled]
    assert "unavailable" == figures.recall


@pytest.mark.parametrize("method", REQUESTS)
def test_bytes_that_are_no_message(served: Serving, method: str) -> None:
    """Malformed protobuf is the caller's fault: INVALID_ARGUMENT, not INTERNAL."""
    refused = failure(lambda: raw(served, method)(b"\xff\xff\xff"))
    assert ("INVALID_ARGUMENT", "INVALID_REQUEST") == (refused.code, refused.reason)


@pytest.mark.parametrize("method", [name for name, of in REQUESTS.items() if "run_id" in of.DESCRIPTOR.fields_by_name])
def test_an_empty_message(served: Serving, method: str) -> None:
    """A request of a run with nothing in it is told which field it lacks first."""
    refused = failure(lambda: raw(served, method)(b""))
    assert "INVALID_ARGUMENT" == refused.code
    assert refused.field in {"run_id", "stash_id"}


@pytest.mark.parametrize("body", [b"", b"not json", b"[" * 100_000, b"1", b'{"a":', b"\xff\xfe", b'[{"role":NaN}]'])
def test_bodies_that_are_no_prompt(served: Serving, body: bytes) -> None:
    """A body that cannot be read is INVALID_ARGUMENT, names json.body, and does not quote it."""
    refused = failure(lambda: served.stub.TrimPrompt(request("bad", body)))
    assert "INVALID_ARGUMENT" == refused.code
    assert refused.field.startswith("json.body")
    assert "not json" not in refused.message
    assert served.stub.TrimPrompt(request("bad")).fits


def test_a_typed_prompt_comes_back_as_it_was_sent(served: Serving) -> None:
    """Typed messages that are not trimmed come back byte for byte, unknown fields included."""
    known = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, parts=[conversation_pb2.Part(text="hi")])
    odd = known.SerializeToString() + b"\xfa\x3f\x03new"
    prompt = b"".join(length_delimited(3, write_slices([odd])))
    answer = raw(served)(b"".join(length_delimited(1, b"typed")) + prompt)
    assert odd in answer
    assert known.parts[0] in trim_pb2.TrimPromptResponse.FromString(answer).conversation.messages[-1].parts


def test_a_typed_message_that_is_none(served: Serving) -> None:
    """A typed message that cannot be parsed is the caller's fault."""
    prompt = b"".join(length_delimited(3, write_slices([b"\xff\xff"])))
    refused = failure(lambda: raw(served)(b"".join(length_delimited(1, b"typed-bad")) + prompt))
    assert "INVALID_ARGUMENT" == refused.code


def test_policy_faults_are_named_as_on_the_wire(served: Serving) -> None:
    """A policy value out of bounds names the field as the proto spells it."""
    asked = request()
    asked.policy.CopyFrom(policy_pb2.Policy(fit_residue_high=1.5))
    refused = failure(lambda: served.stub.TrimPrompt(asked))
    assert ("INVALID_ARGUMENT", "INVALID_POLICY", "policy.fit_residue_high") == (
        refused.code,
        refused.reason,
        refused.field,
    )


def test_a_message_over_the_size_limit(served: Serving) -> None:
    """65 MiB are refused with RESOURCE_EXHAUSTED, and the server goes on."""
    with grpc.insecure_channel(served.address, options=WIDE) as channel:
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/prompt_sidecar.v1.SidecarService/TrimPrompt"
        )
        refused = failure(lambda: send(bytes(65 * MIB), timeout=PATIENCE))
    assert "RESOURCE_EXHAUSTED" == refused.code
    assert served.stub.TrimPrompt(request()).fits


def test_an_answer_over_what_the_client_accepts(served: Serving) -> None:
    """An answer larger than accept_bytes is refused before anything changes."""
    asked = request("small-client")
    asked.accept_bytes = 10
    refused = failure(lambda: served.stub.TrimPrompt(asked))
    assert ("RESOURCE_EXHAUSTED", "TOO_LARGE") == (refused.code, refused.reason)
    assert "RUN_UNKNOWN" == failure(lambda: served.stub.GetRun(run_pb2.GetRunRequest(run_id="small-client"))).reason


def test_an_unknown_method(served: Serving) -> None:
    """A method that does not exist is UNIMPLEMENTED."""
    assert "UNIMPLEMENTED" == failure(lambda: raw(served, "Nonesuch")(b"")).code


def test_a_failure_of_ours_leaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a clock or a library raises, the client gets INTERNAL and an id that the log has too; no text."""

    class Panic(BaseException):
        """As native code raises: not an Exception."""

    for kind in (ValueError, RecursionError, Panic):
        caplog.clear()
        with serving() as served, caplog.at_level(logging.ERROR):

            def broken(kind: type[BaseException] = kind) -> float:
                raise kind("the prompt's secret text")

            served.gate.replace(broken)
            refused = failure(partial(served.stub.TrimPrompt, request(), timeout=PATIENCE))
        assert ("INTERNAL", "INTERNAL") == (refused.code, refused.reason)
        incident = refused.message.rsplit(" ", 1)[1]
        assert incident in caplog.text
        assert kind.__name__ in caplog.text
        assert "secret" not in refused.message + caplog.text


def test_a_deadline_that_passes(served: Serving) -> None:
    """A call whose deadline passes while it works ends with DEADLINE_EXCEEDED, and the server goes on."""
    late = partial(served.stub.TrimPrompt.future, request("late"), timeout=LATE)
    assert "DEADLINE_EXCEEDED" == outlasted(served.gate, late).code
    assert served.stub.TrimPrompt(request("late")).fits


def test_a_call_that_waited_past_its_deadline_is_not_run() -> None:
    """A call that no thread took before its deadline never reaches the core."""
    with serving(ServerOptions(listen="127.0.0.1:0", workers=1, sweep_interval=3_600)) as served:
        served.gate.shut()
        first = served.stub.TrimPrompt.future(request("first"))
        served.gate.wait_reached()
        assert "DEADLINE_EXCEEDED" == failure(lambda: served.stub.TrimPrompt(request("queued"), timeout=0.2)).code
        # On the same connection: once this is answered, the server knows that the caller of the other has gone.
        assert b"\x08\x01" == health(served)(b"", timeout=PATIENCE)
        served.gate.open()
        assert first.result(PATIENCE).fits
        asked = run_pb2.GetRunRequest(run_id="queued")
        assert "RUN_UNKNOWN" == failure(lambda: served.stub.GetRun(asked, timeout=PATIENCE)).reason


def test_calls_past_the_bound_are_refused_at_once() -> None:
    """With as many calls as may run or wait, one more gets RESOURCE_EXHAUSTED, while health still answers."""
    options = ServerOptions(listen="127.0.0.1:0", workers=1, max_calls=2, sweep_interval=3_600)
    with serving(options) as served:
        served.gate.shut()
        held = [served.stub.TrimPrompt.future(request("one"))]
        served.gate.wait_reached()
        held.append(served.stub.TrimPrompt.future(request("two")))
        assert b"\x08\x01" == health(served)(b"", timeout=PATIENCE)
        expected = Failure(
            "RESOURCE_EXHAUSTED", "as many calls run or wait as server.max_calls allows; retry a little later",
            "TOO_LARGE", "",
        )  # fmt: skip
        # The second call is counted once it has arrived, which the health check's order does not promise.
        refusals = (failure(lambda: served.stub.TrimPrompt(request("three"), timeout=1)) for _ in range(5))
        assert expected in refusals
        served.gate.open()
        assert [True, True] == [call.result(PATIENCE).fits for call in held]
        assert served.stub.TrimPrompt(request("four")).fits


def test_cancelled_calls_free_their_threads() -> None:
    """Callers that go away leave nothing behind: later calls find threads."""
    with serving(ServerOptions(listen="127.0.0.1:0", workers=4, max_calls=4, sweep_interval=3_600)) as served:
        served.gate.shut()
        calls = [served.stub.TrimPrompt.future(request(f"run-{index}")) for index in range(2)]
        for _ in calls:
            served.gate.wait_reached()
        for call in calls:
            call.cancel()
        served.gate.open()
        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(lambda index: served.stub.TrimPrompt(request(f"after-{index}")).fits, range(2))
        assert [True, True] == list(answers)
