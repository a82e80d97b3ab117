"""ReportUsage: what its request may hold, and every fact of an answer in its field."""

from __future__ import annotations

from typing import Any

import pytest

from prompt_sidecar.doors.grpc.conversion.responses import message
from prompt_sidecar.doors.grpc.conversion.usage import usage_call
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.usage_calls import (
    CacheUse,
    Calibrated,
    InputCounting,
    ReportedRefusal,
    UsageAnswer,
    UsageCall,
    UsageOutcome,
)
from prompt_sidecar.tokens.refusals import MOST_CHARACTERS
from prompt_sidecar.v1 import usage_pb2

Request = usage_pb2.ReportUsageRequest
Refusal = usage_pb2.PromptRefusal


def test_a_request_becomes_a_call() -> None:
    """Each field arrives, and what is not set is absent."""
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
    refusal = ReportedRefusal("too long", 8_192)
    counting = InputCounting.WITHOUT_CACHED
    assert UsageCall("me", "run", "gpt-4o", 1_000, 0, 5, 7, counting, refusal, b"revision") == usage_call(sent, "me")
    plain = UsageCall("me", "run", input_tokens=3)
    assert plain == usage_call(Request(run_id="run", input_tokens=3), "me")
    assert ReportedRefusal() == usage_call(Request(run_id="run", refusal=Refusal()), "me").refusal


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
    ) == message(usage_pb2.ReportUsageResponse, answer)


@pytest.mark.parametrize("kind", [UsageOutcome, Calibrated, CacheUse])
def test_every_word_of_the_core_has_one_on_the_wire(kind: Any) -> None:
    """No outcome is without a name on the wire."""
    fields = {UsageOutcome: "outcome", Calibrated: "calibrated", CacheUse: "cache"}
    wire = {UsageOutcome: "outcome", Calibrated: "calibration_use", CacheUse: "cache_use"}
    seen = set()
    for value in kind:
        answer = UsageAnswer(**({"outcome": UsageOutcome.RECORDED} | {fields[kind]: value}))
        converted = message(usage_pb2.ReportUsageResponse, answer)
        number = getattr(converted, wire[kind])
        type_ = converted.DESCRIPTOR.fields_by_name[wire[kind]].enum_type
        assert type_ is not None
        name = type_.values_by_number[number].name
        assert name.endswith(("_UNSPECIFIED", f"_{value.name}"))
        seen.add(number)
    assert len(kind) == len(seen)
