"""ListTools and CallTool: their requests, and the definitions of tools.

Text written by the *model* is not checked here: a tool's name and arguments are passed to the core unchanged, however
wrong. The core answers a wrong call with a text that says what the model has to correct; an RPC error would reach only
the agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from prompt_sidecar.calls.checks import MOST_TOOLS, check_names, checked_request_id, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_name
from prompt_sidecar.doors.grpc.conversion.responses import messages
from prompt_sidecar.facts.tool_calls import ToolCall, ToolDefinition
from prompt_sidecar.v1 import tool_pb2, trim_pb2


def tools_asked(request: tool_pb2.ListToolsRequest) -> tuple[str, tuple[str, ...]]:
    """Return the format, empty for definitions in no provider's format, and the names that a ListToolsRequest asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    check_names("names", request.names, MOST_TOOLS)
    form = enum_name(trim_pb2.Format, request.format, "FORMAT_", "format") if request.format else ""
    return form, tuple(request.names)


def tools_response(tools: Sequence[ToolDefinition]) -> tool_pb2.ListToolsResponse:
    """Return the response for tool definitions; its array holds them byte for byte."""
    return tool_pb2.ListToolsResponse(
        tools=messages(tool_pb2.ToolDefinition, tools),
        tools_json=b"[" + b",".join(tool.definition for tool in tools) + b"]",
    )


def tool_call(request: tool_pb2.CallToolRequest, caller: str) -> ToolCall:
    """Return the call that a CallToolRequest of `caller` asks for.

    Raises:
        InvalidRequest: `run_id` or `request_id`, which the agent chose, is not valid.
    """
    return ToolCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        name=request.name,
        arguments=request.arguments_json,
        request_id=checked_request_id(request.request_id),
    )
