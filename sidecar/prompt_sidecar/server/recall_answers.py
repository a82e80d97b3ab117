"""Facts to answers, for what is fetched back: retrievals, searches, tasks and the model's tools."""

from __future__ import annotations

from collections.abc import Sequence

from prompt_sidecar.facts.figures import HistoryFigures
from prompt_sidecar.facts.recall_calls import RetrieveAnswer
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolDefinition, ToolOutcome
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import Found, SearchOutcome, Snippet
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.server.fields import enum_numbers
from prompt_sidecar.trim.own_text import plain_name
from prompt_sidecar.v1 import conversation_pb2, retrieve_pb2, run_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2

_KIND = enum_numbers(trim_pb2.ItemKind, "ITEM_KIND_", ItemKind)
_ROLE = enum_numbers(conversation_pb2.Role, "ROLE_", Role, Role.OTHER)
_RETRIEVED = enum_numbers(retrieve_pb2.RetrieveOutcome, "RETRIEVE_OUTCOME_", Outcome)
_SEARCHED = enum_numbers(search_pb2.SearchOutcome, "SEARCH_OUTCOME_", SearchOutcome)
_STATUS = enum_numbers(task_pb2.TaskStatus, "TASK_STATUS_", TaskStatus)
_CALLED = enum_numbers(tool_pb2.ToolOutcome, "TOOL_OUTCOME_", ToolOutcome)


def retrieve_response(answer: RetrieveAnswer) -> retrieve_pb2.RetrieveContentResponse:
    """Turn what a retrieval found into its message."""
    return retrieve_pb2.RetrieveContentResponse(
        outcome=_RETRIEVED[answer.outcome],
        message=answer.message,
        content=answer.content,
        content_type=answer.content_type,
        total_bytes=answer.total_bytes,
        total_lines=answer.total_lines,
        stretches=[
            retrieve_pb2.Stretch(
                start_byte=stretch.start_byte,
                end_byte=stretch.end_byte,
                first_line=stretch.first_line,
                last_line=stretch.last_line,
            )
            for stretch in answer.stretches
        ],
        more=answer.more,
        next_offset=answer.next_offset,
        matching_lines=answer.matching_lines,
        content_tokens=answer.content_tokens,
    )


def search_response(found: Found) -> search_pb2.SearchHistoryResponse:
    """Turn what a search found into its message."""
    return search_pb2.SearchHistoryResponse(
        outcome=_SEARCHED[found.outcome],
        message=found.message,
        snippets=[_snippet(snippet) for snippet in found.snippets],
        rendered=found.rendered,
        matching_items=found.matching_items,
        first_iteration=found.first_iteration,
        last_iteration=found.last_iteration,
        gone_items=found.gone_items,
        terms_left_out=found.terms_left_out,
        rendered_tokens=found.rendered_tokens,
    )


def task_items(tasks: Sequence[TaskItem]) -> Sequence[task_pb2.TaskItem]:
    """Turn tasks into their messages."""
    return [task_pb2.TaskItem(id=task.id, text=task.text, status=_STATUS[task.status]) for task in tasks]


def tools_response(tools: Sequence[ToolDefinition]) -> tool_pb2.ListToolsResponse:
    """Turn definitions into their message; the array is the definitions themselves, byte for byte."""
    return tool_pb2.ListToolsResponse(
        tools=[
            tool_pb2.ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json=tool.parameters,
                definition_json=tool.definition,
            )
            for tool in tools
        ],
        tools_json=b"[" + b",".join(tool.definition for tool in tools) + b"]",
    )


def tool_response(answer: ToolAnswer) -> tool_pb2.CallToolResponse:
    """Turn what a tool call came to into its message."""
    response = tool_pb2.CallToolResponse(
        outcome=_CALLED[answer.outcome],
        content=answer.content,
        is_error=answer.is_error,
        content_tokens=answer.content_tokens,
    )
    if answer.recalled is not None:
        response.recalled.CopyFrom(retrieve_response(answer.recalled))
    elif answer.found is not None:
        response.found.CopyFrom(search_response(answer.found))
    elif answer.tasks is not None:
        response.tasks.CopyFrom(task_pb2.ListTasksResponse(tasks=task_items(answer.tasks)))
    return response


def history_figures(history: HistoryFigures) -> run_pb2.HistoryFigures:
    """Turn the figures of a run's history into their message."""
    return run_pb2.HistoryFigures(
        items=history.items,
        passages=history.passages,
        index_bytes=history.index_bytes,
        waiting_bytes=history.waiting_bytes,
        first_iteration=history.first_iteration,
        searches=history.searches,
        searches_found=history.searches_found,
        tool_calls=history.tool_calls,
    )


def _snippet(snippet: Snippet) -> search_pb2.Snippet:
    item = snippet.item
    return search_pb2.Snippet(
        stash_id=item.stash_id,
        role=_ROLE[item.role],
        kind=_KIND[item.kind],
        tool=plain_name(item.tool),
        call_id=item.call_id,
        iteration=item.iteration,
        start_byte=snippet.start_byte,
        end_byte=snippet.end_byte,
        first_line=snippet.first_line,
        last_line=snippet.last_line,
        total_bytes=item.size,
        total_lines=snippet.total_lines,
        content_type=item.content_type,
        text=snippet.text,
        score=snippet.score,
        tokens=snippet.tokens,
        repeats=snippet.repeats,
    )
