"""RestoreSecrets: its request."""

from __future__ import annotations

from prompt_sidecar.calls.checks import check_count, check_name, checked_run_id
from prompt_sidecar.facts.guard_calls import RestoreCall, ToolArguments
from prompt_sidecar.v1 import guard_pb2

MOST_CALLS = 1_000
"""Calls of one request; a model makes some tens at once."""


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
