"""ReportUsage: its request."""

from __future__ import annotations

from typing import Any, Final

from prompt_sidecar.calls.checks import check_length, check_number, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_name
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.usage_calls import (
    InputCounting,
    ReportedRefusal,
    UsageCall,
)
from prompt_sidecar.tokens.refusals import LEAST_TOKENS, MOST_CHARACTERS, MOST_TOKENS
from prompt_sidecar.v1 import usage_pb2

_COUNTS: Final = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")


def usage_call(request: usage_pb2.ReportUsageRequest, caller: str) -> UsageCall:
    """Return the call that a ReportUsageRequest of `caller` asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar, or nothing is reported.
    """
    run_id = checked_run_id(request.run_id)
    check_length("model", request.model)
    counts: dict[str, Any] = {}
    for name in _COUNTS:
        counts[name] = getattr(request, name) if request.HasField(name) else None
        check_number(name, counts[name] or 0, 0, MOST_TOKENS)
    refused = request.HasField("refusal")
    if not (refused or request.failed) and all(count is None for count in counts.values()):
        message = f"nothing is reported; set one of {', '.join(_COUNTS)}, refusal or failed"
        raise InvalidRequest(message, field="input_tokens")
    if refused and request.failed:
        raise InvalidRequest(
            "set refusal or failed: a prompt that was refused as too long is no failure", field="failed"
        )
    counting = InputCounting.AS_PROVIDER
    if request.input_counting:
        name = enum_name(usage_pb2.InputCounting, request.input_counting, "INPUT_COUNTING_", "input_counting")
        counting = InputCounting(name)
    return UsageCall(
        caller=caller,
        run_id=run_id,
        model=request.model,
        counting=counting,
        refusal=_refusal(request.refusal) if refused else None,
        revision=request.revision,
        failed=request.failed,
        **counts,
    )


def _refusal(refusal: usage_pb2.PromptRefusal) -> ReportedRefusal:
    if refusal.limit:
        check_number("refusal.limit", refusal.limit, LEAST_TOKENS, MOST_TOKENS)
    return ReportedRefusal(refusal.message[:MOST_CHARACTERS], refusal.limit)
