"""ReportUsage: what its request may hold, what its answer tells, and the whole of it over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.usage_calls import (
    CacheUse,
    Calibrated,
    InputCounting,
    RefusalTold,
    UsageAnswer,
    UsageCall,
    UsageOutcome,
)
from prompt_sidecar.server.usage_conversion import report_usage, usage_call, usage_response
from prompt_sidecar.tokens.refusals import MOST_CHARACTERS
from prompt_sidecar.v1 import trim_pb2, usage_pb2
from tests.server.serving import PATIENCE, Serving, failure, request, serving

Request = usage_pb2.ReportUsageRequest
Refusal = usage_pb2.PromptRefusal


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    """One server for the tests, each of which has runs of its own."""
    with serving() as running:
        yield running


def test_a_request_becomes_a_call() -> None:
    """Each field arrives, and what is not set is not told."""
    sent = Request(
        run_id="run",
        model="gpt-4o",
        input_tokens=1_000,
        cached_tokens=0,
        cache_write_tokens=5,
        output_tokens=7,
        input_counting=usage_pb2.INPUT_COUNTING_WITHOUT_CACHED,
        refusal=Refusal(message="too long", limit=8_192),
        revision=b"revision",
    )
    told = RefusalTold("too long", 8_192)
    counting = InputCounting.WITHOUT_CACHED
    assert UsageCall("me", "run", "gpt-4o", 1_000, 0, 5, 7, counting, told, b"revision") == usage_call(sent, "me")
    plain = UsageCall("me", "run", input_tokens=3)
    assert plain == usage_call(Request(run_id="run", input_tokens=3), "me")
    assert RefusalTold() == usage_call(Request(run_id="run", refusal=Refusal()), "me").refusal


def test_a_long_message_is_cut() -> None:
    """No more of a provider's message is kept than is read."""
    call = usage_call(Request(run_id="run", refusal=Refusal(message="x" * 100_000)), "me")
    assert call.refusal is not None
    assert MOST_CHARACTERS == len(call.refusal.message)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"run_id": "", "input_tokens": 1}, "run_id"),
        ({}, "input_tokens"),
        ({"input_tokens": -1}, "input_tokens"),
        ({"input_tokens": 100_000_001}, "input_tokens"),
        ({"cached_tokens": -1}, "cached_tokens"),
        ({"cache_write_tokens": -1}, "cache_write_tokens"),
        ({"output_tokens": -1}, "output_tokens"),
        ({"input_tokens": 1, "input_counting": 9}, "input_counting"),
        ({"input_tokens": 1, "model": "m" * 300}, "model"),
        ({"refusal": Refusal(limit=255)}, "refusal.limit"),
        ({"refusal": Refusal(limit=100_000_001)}, "refusal.limit"),
    ],
)
def test_what_can_never_be_right_is_refused(fields: dict[str, Any], field: str) -> None:
    """A value out of its bounds, or a report of nothing, names its field."""
    with pytest.raises(InvalidRequest) as raised:
        usage_call(Request(**({"run_id": "run"} | fields)), "me")
    assert field == raised.value.field


def test_bytes_that_are_no_request() -> None:
    """They are refused as any other bad input."""
    with pytest.raises(InvalidRequest):
        report_usage(b"\xff", "me", lambda _: UsageAnswer(UsageOutcome.RECORDED))


def test_an_answer_becomes_a_response() -> None:
    """Every fact of an answer is in the response, shares as per cent where the field says so."""
    answer = UsageAnswer(
        UsageOutcome.RECORDED, 90, 100, -0.1, 1.0, 1.05, Calibrated.USED, 80, 85, CacheUse.BREAK_SUSPECTED, 60, 20, 0.2
    )
    assert usage_pb2.ReportUsageResponse(
        outcome=usage_pb2.USAGE_OUTCOME_RECORDED,
        estimated_tokens=90,
        real_tokens=100,
        error_percent=-10.0,
        factor_before=1.0,
        factor_after=1.05,
        calibration_use=usage_pb2.CALIBRATION_USE_USED,
        learned_limit=80,
        next_limit=85,
        cache_use=usage_pb2.CACHE_USE_BREAK_SUSPECTED,
        cached_tokens_expected=60,
        cached_tokens=20,
        cache_hit_share=0.2,
    ) == usage_response(answer)


@pytest.mark.parametrize("kind", [UsageOutcome, Calibrated, CacheUse])
def test_every_word_of_the_core_has_one_on_the_wire(kind: Any) -> None:
    """No outcome is without a name on the wire."""
    fields = {UsageOutcome: "outcome", Calibrated: "calibrated", CacheUse: "cache"}
    for value in kind:
        usage_response(UsageAnswer(**({"outcome": UsageOutcome.RECORDED} | {fields[kind]: value})))


# -- over the wire ---------------------------------------------------------------------------------------------------


def _prompt(size: int = 400) -> bytes:
    text = " ".join(f"word{number}" for number in range(size))
    return json.dumps([{"role": "user", "content": text}]).encode()


def _trim(served: Serving, run_id: str, window: int = 0) -> trim_pb2.TrimPromptResponse:
    """Trim as a model of the run's own: what one test reports must not correct the figures of another."""
    asked = request(run_id, _prompt())
    asked.model, asked.context_window = f"unheard-of {run_id}", window
    return served.stub.TrimPrompt(asked, timeout=PATIENCE)


def _report(served: Serving, run_id: str, **fields: Any) -> usage_pb2.ReportUsageResponse:
    return served.stub.ReportUsage(Request(run_id=run_id, **fields), timeout=PATIENCE)


def test_reports_correct_the_figures(served: Serving) -> None:
    """After three reports the answers' figures are the provider's, and say by which factor."""
    first = _trim(served, "corrected").tokens
    real = round(first.after * 1.3)
    for _ in range(3):
        sent = _trim(served, "corrected")
        told = _report(served, "corrected", input_tokens=real, revision=sent.revision)
        assert usage_pb2.CALIBRATION_USE_USED == told.calibration_use
    tokens = _trim(served, "corrected").tokens
    assert real == pytest.approx(tokens.after, rel=0.03)
    assert 1.3 == pytest.approx(tokens.calibration_factor, rel=0.03)
    assert first.limit == tokens.limit


def test_a_report_comes_once(served: Serving) -> None:
    """A retried report is answered as the first was, and says so."""
    _trim(served, "once")
    assert usage_pb2.USAGE_OUTCOME_RECORDED == _report(served, "once", input_tokens=900).outcome
    again = _report(served, "once", input_tokens=100)
    assert (usage_pb2.USAGE_OUTCOME_REPEATED, 900) == (again.outcome, again.real_tokens)


def test_a_refusal_lowers_the_next_limit(served: Serving) -> None:
    """The limit that the provider named is in force at the run's next prompt, and at no other run's."""
    _trim(served, "refused", window=100_000)
    refusal = Refusal(message="prompt is too long: 60001 tokens > 50000 maximum")
    told = _report(served, "refused", refusal=refusal)
    assert (50_000, 60_001) == (told.learned_limit, told.real_tokens)
    assert told.next_limit == _trim(served, "refused", window=100_000).tokens.limit <= 50_000
    assert 100_000 == _trim(served, "not refused", window=100_000).tokens.limit


def test_a_run_that_is_not_known(served: Serving) -> None:
    """It is NOT_FOUND, with the reason that says what to do."""
    told = failure(lambda: _report(served, "nobody's", input_tokens=5))
    assert ("NOT_FOUND", "RUN_UNKNOWN") == (told.code, told.reason)
