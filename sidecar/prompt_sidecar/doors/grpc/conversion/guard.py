"""RestoreSecrets: its request and response, and the findings in the response to TrimPrompt."""

from __future__ import annotations

from collections.abc import Sequence

from prompt_sidecar.calls.checks import check_count, check_name, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_numbers
from prompt_sidecar.facts.guard_calls import Finding, FindingAction, RestoreCall, RestoredArguments, ToolArguments
from prompt_sidecar.v1 import guard_pb2

MOST_CALLS = 1_000
"""Calls of one request; a model makes some tens at once."""

_ACTION = enum_numbers(guard_pb2.FindingAction, "FINDING_ACTION_", FindingAction)


def restore_call(request: guard_pb2.RestoreSecretsRequest, caller: str) -> RestoreCall:
    """Return the call that a RestoreSecretsRequest of `caller` asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    check_count("calls", request.calls, MOST_CALLS)
    for index, call in enumerate(request.calls):
        check_name(f"calls[{index}].tool", call.tool)
    return RestoreCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        calls=[ToolArguments(call.tool, call.arguments) for call in request.calls],
    )


def restore_response(calls: Sequence[RestoredArguments]) -> guard_pb2.RestoreSecretsResponse:
    """Return the response with what the calls became."""
    return guard_pb2.RestoreSecretsResponse(
        calls=[
            guard_pb2.RestoredArguments(
                arguments=call.arguments,
                restored=call.restored,
                not_allowed=call.not_allowed,
                unknown=call.unknown,
            )
            for call in calls
        ]
    )


def finding_message(finding: Finding) -> guard_pb2.Finding:
    """Return the message of a finding."""
    return guard_pb2.Finding(
        rule=finding.rule,
        action=_ACTION[finding.action],
        message_index=finding.message_index,
        item_index=finding.item_index,
        count=finding.count,
    )
