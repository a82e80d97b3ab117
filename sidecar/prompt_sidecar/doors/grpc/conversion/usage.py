"""ReportUsage: its request and response."""

from __future__ import annotations

from typing import Final

from prompt_sidecar.calls.checks import check_length, check_number, checked_run_id
from prompt_sidecar.doors.grpc.conversion.comparison import comparison_message
from prompt_sidecar.doors.grpc.conversion.enums import enum_name, enum_numbers
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
from prompt_sidecar.tokens.refusals import LEAST_TOKENS, MOST_CHARACTERS, MOST_TOKENS
from prompt_sidecar.v1 import usage_pb2

_COUNTS: Final = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_OUTCOME = enum_numbers(usage_pb2.UsageOutcome, "USAGE_OUTCOME_", UsageOutcome)
_CALIBRATED = enum_numbers(usage_pb2.CalibrationUse, "CALIBRATION_USE_", Calibrated)
_CACHE = enum_numbers(usage_pb2.CacheUse, "CACHE_USE_", CacheUse, CacheUse.NOT_TOLD)


def usage_call(request: usage_pb2.ReportUsageRequest, caller: str) -> UsageCall:
    """Return the call that a ReportUsageRequest of `caller` asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar, or nothing is reported.
    """
    run_id = checked_run_id(request.run_id)
    check_length("model", request.model)
    counts: dict[str, int | None] = {}
    for name in _COUNTS:
        counts[name] = getattr(request, name) if request.HasField(name) else None
        check_number(name, counts[name] or 0, 0, MOST_TOKENS)
    refused = request.HasField("refusal")
    if not refused and all(count is None for count in counts.values()):
        raise InvalidRequest(f"nothing is reported; set one of {', '.join(_COUNTS)} or refusal", field="input_tokens")
    counting = InputCounting.AS_PROVIDER
    if request.input_counting:
        name = enum_name(usage_pb2.InputCounting, request.input_counting, "INPUT_COUNTING_", "input_counting")
        counting = InputCounting(name)
    return UsageCall(
        caller=caller,
        run_id=run_id,
        model=request.model,
        input_tokens=counts["input_tokens"],
        cached_tokens=counts["cached_tokens"],
        cache_write_tokens=counts["cache_write_tokens"],
        output_tokens=counts["output_tokens"],
        counting=counting,
        refusal=_refusal(request.refusal) if refused else None,
        revision=request.revision,
    )


def usage_response(answer: UsageAnswer) -> usage_pb2.ReportUsageResponse:
    """Return the response for what was learned from a report."""
    return usage_pb2.ReportUsageResponse(
        outcome=_OUTCOME[answer.outcome],
        estimated_tokens=answer.estimated_tokens,
        real_tokens=answer.real_tokens,
        error_percent=100 * answer.error,
        factor_before=answer.factor_before,
        factor_after=answer.factor_after,
        calibration_use=_CALIBRATED[answer.calibrated],
        learned_limit=answer.learned_limit,
        next_limit=answer.next_limit,
        cache_use=_CACHE[answer.cache],
        cached_tokens_expected=answer.cached_expected,
        cached_tokens=answer.cached_tokens,
        cache_hit_share=answer.cache_hit_share,
        comparison=None if answer.comparison is None else comparison_message(answer.comparison),
    )


def _refusal(refusal: usage_pb2.PromptRefusal) -> ReportedRefusal:
    if refusal.limit:
        check_number("refusal.limit", refusal.limit, LEAST_TOKENS, MOST_TOKENS)
    return ReportedRefusal(refusal.message[:MOST_CHARACTERS], refusal.limit)
