"""Searches, tasks and tool calls to facts, checked as `conversion.py` checks prompts.

One thing differs: what a *model* wrote is never refused here. A tool's name and arguments go to the core as they are,
however wrong, since its answer tells the model what to do better and an RPC error would only tell the agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_calls import SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolCall
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.found import MOST_SNIPPET_TOKENS, MOST_SNIPPETS, MOST_TOTAL_TOKENS, SearchQuery
from prompt_sidecar.server.fields import check_length, check_name, check_number, checked_run_id, enum_name
from prompt_sidecar.v1 import conversation_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2

MOST_TOOLS = 64
"""Names of tools in one request: half of what a provider lets an agent define."""
MOST_STASH_IDS = 256
"""Stash ids in one search: six times what a registry shows."""
MOST_ROLES = 16
"""Roles in one search, repeated ones counted: there are three to choose from."""
REQUEST_ID_BYTES = 128
"""The longest request id: twice a UUID with a prefix; some hundred are kept for each run."""


def search_call(request: search_pb2.SearchHistoryRequest, caller: str) -> SearchCall:
    """Turn a SearchHistoryRequest into a call of `caller`. The query itself is the core's to judge.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    run_id = checked_run_id(request.run_id)
    _check_names("tools", request.tools, MOST_TOOLS)
    _check_names("stash_ids", request.stash_ids, MOST_STASH_IDS)
    check_number("first_iteration", request.first_iteration, 0)
    check_number("last_iteration", request.last_iteration, 0)
    if request.last_iteration:
        check_number("last_iteration", request.last_iteration, request.first_iteration)
    check_number("max_snippets", request.max_snippets, 0, MOST_SNIPPETS)
    check_number("snippet_tokens", request.snippet_tokens, 0, MOST_SNIPPET_TOKENS)
    check_number("total_tokens", request.total_tokens, 0, MOST_TOTAL_TOKENS)
    query = SearchQuery(
        query=request.query,
        roles=_roles(request),
        tools=frozenset(request.tools),
        first_iteration=request.first_iteration,
        last_iteration=request.last_iteration,
        stash_ids=frozenset(request.stash_ids),
        max_snippets=request.max_snippets,
        snippet_tokens=request.snippet_tokens,
        total_tokens=request.total_tokens,
    )
    return SearchCall(caller, run_id, query)


def create_tasks_call(request: task_pb2.CreateTasksRequest, caller: str) -> CreateTasksCall:
    """Turn a CreateTasksRequest into a call of `caller`. How many and how long tasks may be is the core's to judge.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    mode = enum_name(task_pb2.CreateTasksMode, request.mode or 1, "CREATE_TASKS_MODE_", "mode")
    return CreateTasksCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        items=tuple(request.items),
        append=mode == "append",
        request_id=_request_id(request.request_id),
    )


def update_task_call(request: task_pb2.UpdateTaskRequest, caller: str) -> UpdateTaskCall:
    """Turn an UpdateTaskRequest into a call of `caller`.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    run_id = checked_run_id(request.run_id)
    check_number("id", request.id, 1)
    return UpdateTaskCall(
        caller=caller,
        run_id=run_id,
        id=request.id,
        status=TaskStatus(enum_name(task_pb2.TaskStatus, request.status, "TASK_STATUS_", "status")),
        request_id=_request_id(request.request_id),
    )


def tools_asked(request: tool_pb2.ListToolsRequest) -> tuple[str, tuple[str, ...]]:
    """Return the format, empty for plain definitions, and the names that a ListToolsRequest asks for.

    Raises:
        InvalidRequest: a field's value is never right.
    """
    _check_names("names", request.names, MOST_TOOLS)
    form = enum_name(trim_pb2.Format, request.format, "FORMAT_", "format") if request.format else ""
    return form, tuple(request.names)


def tool_call(request: tool_pb2.CallToolRequest, caller: str) -> ToolCall:
    """Turn a CallToolRequest into a call of `caller`; see the module on what is not checked.

    Raises:
        InvalidRequest: `run_id` or `request_id`, which are the agent's, can never be right.
    """
    return ToolCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        name=request.name,
        arguments=request.arguments_json,
        request_id=_request_id(request.request_id),
    )


def _roles(request: search_pb2.SearchHistoryRequest) -> frozenset[Role]:
    check_length("roles", request.roles, MOST_ROLES)
    roles: set[Role] = set()
    for index, value in enumerate(request.roles):
        role = Role(enum_name(conversation_pb2.Role, value, "ROLE_", f"roles[{index}]"))
        if role is Role.SYSTEM:
            raise InvalidRequest(
                f"roles[{index}] is ROLE_SYSTEM, whose text is never recorded; "
                "it may be one of ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL",
                field=f"roles[{index}]",
            )
        roles.add(role)
    return frozenset(roles)


def _check_names(field: str, names: Sequence[str], most: int) -> None:
    check_length(field, names, most)
    for index, name in enumerate(names):
        check_name(f"{field}[{index}]", name)


def _request_id(request_id: str) -> str:
    if request_id:
        check_name("request_id", request_id, REQUEST_ID_BYTES)
    return request_id
