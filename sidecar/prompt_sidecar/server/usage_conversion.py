"""ReportUsage: its request to the core's call, what it taught to its answer, and the one handler between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

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
from prompt_sidecar.server.fields import (
    NAME_BYTES,
    check_message,
    check_number,
    checked_run_id,
    enum_name,
    enum_numbers,
)
from prompt_sidecar.tokens.refusals import LEAST_TOKENS, MOST_CHARACTERS, MOST_TOKENS
from prompt_sidecar.v1 import usage_pb2

_COUNTS: Final = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
_OUTCOME = enum_numbers(usage_pb2.UsageOutcome, "USAGE_OUTCOME_", UsageOutcome)
_CALIBRATED = enum_numbers(usage_pb2.CalibrationUse, "CALIBRATION_USE_", Calibrated)
_CACHE = enum_numbers(usage_pb2.CacheUse, "CACHE_USE_", CacheUse, CacheUse.NOT_TOLD)


def report_usage(raw: bytes, caller: str, report: Callable[[UsageCall], UsageAnswer]) -> bytes:
    """Serve a serialised ReportUsageRequest of `caller` with the use case `report`.

    Raises:
        InvalidRequest: the bytes are no request, or a field's value is never right.
        TooLarge: the bytes are more than any report needs.
    """
    check_message(raw)
    try:
        request = usage_pb2.ReportUsageRequest.FromString(raw)
    except DecodeError:
        raise InvalidRequest("the bytes are not a ReportUsageRequest") from None
    return usage_response(report(usage_call(request, caller))).SerializeToString()


def usage_call(request: usage_pb2.ReportUsageRequest, caller: str) -> UsageCall:
    """Turn a ReportUsageRequest into a call of `caller`.

    Raises:
        InvalidRequest: a field's value is never right, or nothing is reported.
    """
    run_id = checked_run_id(request.run_id)
    if len(request.model.encode()) > NAME_BYTES:
        raise InvalidRequest(f"model has over {NAME_BYTES} bytes", field="model")
    counts: dict[str, int | None] = {}
    for name in _COUNTS:
        told = request.HasField(name)
        counts[name] = getattr(request, name) if told else None
        if told:
            check_number(name, getattr(request, name), 0, MOST_TOKENS)
    refused = request.HasField("refusal")
    if not refused and not any(request.HasField(name) for name in _COUNTS):
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
    """Turn what a report taught into its message."""
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
    )


def _refusal(refusal: usage_pb2.PromptRefusal) -> RefusalTold:
    if refusal.limit:
        check_number("refusal.limit", refusal.limit, LEAST_TOKENS, MOST_TOKENS)
    return RefusalTold(refusal.message[:MOST_CHARACTERS], refusal.limit)
