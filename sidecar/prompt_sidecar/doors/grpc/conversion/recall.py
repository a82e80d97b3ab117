"""RetrieveContent and SearchHistory: their requests."""

from __future__ import annotations

from prompt_sidecar.calls.checks import MOST_TOOLS, check_count, check_name, check_names, check_number, checked_run_id
from prompt_sidecar.doors.grpc.conversion.enums import enum_name
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_calls import RetrieveCall, SearchCall
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.found import (
    MOST_SNIPPET_TOKENS,
    MOST_SNIPPETS,
    MOST_TOTAL_TOKENS,
    SearchQuery,
)
from prompt_sidecar.recall.selection import ByteRange, LineRange, PatternMatch, Selection
from prompt_sidecar.v1 import conversation_pb2, retrieve_pb2, search_pb2

CONTEXT_LINES = 100
"""The most lines around a match; more can be fetched as a range of lines."""
MOST_STASH_IDS = 256
"""Stash ids in one search: six times what a registry shows."""
MOST_ROLES = 16
"""Roles in one search, repeated ones counted: there are three to choose from."""


def retrieve_call(request: retrieve_pb2.RetrieveContentRequest, caller: str) -> RetrieveCall:
    """Return the call that a RetrieveContentRequest of `caller` asks for.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    check_name("stash_id", request.stash_id)
    check_number("page_tokens", request.page_tokens, 0)
    check_number("offset", request.offset, 0)
    return RetrieveCall(
        caller=caller,
        run_id=checked_run_id(request.run_id),
        stash_id=request.stash_id,
        selection=_selection(request),
        page_tokens=request.page_tokens,
        offset=request.offset,
    )


def search_call(request: search_pb2.SearchHistoryRequest, caller: str) -> SearchCall:
    """Return the call that a SearchHistoryRequest of `caller` asks for. The core checks the query itself.

    Raises:
        InvalidRequest: a field's value is wrong in any state of the sidecar.
    """
    run_id = checked_run_id(request.run_id)
    check_names("tools", request.tools, MOST_TOOLS)
    check_names("stash_ids", request.stash_ids, MOST_STASH_IDS)
    check_number("first_iteration", request.first_iteration, 0)
    check_number("last_iteration", request.last_iteration, 0)
    if request.last_iteration:
        check_number("last_iteration", request.last_iteration, request.first_iteration)
    sizes = {"max_snippets": MOST_SNIPPETS, "snippet_tokens": MOST_SNIPPET_TOKENS, "total_tokens": MOST_TOTAL_TOKENS}
    for name, most in sizes.items():
        check_number(name, getattr(request, name), 0, most)
    query = SearchQuery(
        query=request.query,
        roles=_roles(request),
        tools=frozenset(request.tools),
        first_iteration=request.first_iteration,
        last_iteration=request.last_iteration,
        stash_ids=frozenset(request.stash_ids),
        **{name: getattr(request, name) for name in sizes},
    )
    return SearchCall(caller, run_id, query)


def _selection(request: retrieve_pb2.RetrieveContentRequest) -> Selection:
    match request.WhichOneof("selection"):
        case "lines":
            lines = request.lines
            check_number("lines.first", lines.first, 1)
            if lines.last:
                check_number("lines.last", lines.last, lines.first)
            return LineRange(lines.first, lines.last)
        case "bytes":
            check_number("bytes.start", request.bytes.start, 0)
            if request.bytes.end:
                check_number("bytes.end", request.bytes.end, request.bytes.start)
            return ByteRange(request.bytes.start, request.bytes.end)
        case "pattern":
            pattern = request.pattern
            if not pattern.expression:
                raise InvalidRequest("pattern.expression is empty", field="pattern.expression")
            if not 0 <= pattern.context_lines <= CONTEXT_LINES:
                message = f"pattern.context_lines is {pattern.context_lines}; it may be 0 to {CONTEXT_LINES}"
                raise InvalidRequest(message, field="pattern.context_lines")
            return PatternMatch(pattern.expression, pattern.context_lines, pattern.ignore_case)
        case _:
            return None


def _roles(request: search_pb2.SearchHistoryRequest) -> frozenset[Role]:
    check_count("roles", request.roles, MOST_ROLES)
    roles: set[Role] = set()
    for index, value in enumerate(request.roles):
        role = Role(enum_name(conversation_pb2.Role, value, "ROLE_", f"roles[{index}]"))
        if role is Role.SYSTEM:
            raise InvalidRequest(
                f"roles[{index}] is ROLE_SYSTEM, by which a search cannot be narrowed; "
                "it may be one of ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL",
                field=f"roles[{index}]",
            )
        roles.add(role)
    return frozenset(roles)
