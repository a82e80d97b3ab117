"""Responses: protobuf messages made from the core's facts.

A fact has the content of a message, mostly under the same names. So a message is made by its descriptor: each field is
taken from the fact's attribute of the same name, unless the table says otherwise. Enums are converted by name, and
nested facts become nested messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, TypeVar

from google.protobuf import message_factory
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.trim_calls import RevisionUse
from prompt_sidecar.facts.usage_calls import CacheUse
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.trim.own_text import plain_name
from prompt_sidecar.v1 import comparison_pb2, retrieve_pb2, run_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2, usage_pb2

M = TypeVar("M", bound=Message)

_WRITERS: Final[dict[Any, Callable[[Any], Any]]] = {}
"""Functions that make messages, by message class."""
_UNSPECIFIED: Final[Mapping[str, StrEnum]] = {
    "Role": Role.OTHER,
    "RevisionUse": RevisionUse.NONE,
    "CacheUse": CacheUse.NOT_TOLD,
}
"""For some enums, the core's value that means unset."""


def message(kind: type[M], fact: Any) -> M:
    """Return the message of a fact; attributes that are None are left unset."""
    made: M = _writer(kind)(fact)
    return made


def messages(kind: type[M], facts: Iterable[Any]) -> list[M]:
    """Return the messages of facts."""
    return list(map(_writer(kind), facts))


def _writer(kind: Any) -> Callable[[Any], Any]:
    if kind not in _WRITERS:
        _WRITERS[kind] = _made_writer(kind)
    return _WRITERS[kind]


def _made_writer(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes the messages of a protobuf class."""
    made = _MADE.get(kind, {})
    computed = {name: each for name, each in made.items() if callable(each)}
    fields = [
        field
        for field in kind.DESCRIPTOR.fields
        if field.name not in computed and made.get(field.name, field.name) is not None
    ]
    names = [field.name for field in fields]
    paths = [str(made.get(name, name)) for name in names]
    read: Callable[[Any], tuple[Any, ...]] = attrgetter(*paths, paths[0]) if paths else lambda _: ()  # always a tuple
    converted = [(field.name, change) for field in fields if (change := _conversion(field)) is not None]

    def write(fact: Any) -> Message:
        values = dict(zip(names, read(fact), strict=False))
        for name, change in converted:
            if values[name] is not None:
                values[name] = change(values[name])
        for name, make in computed.items():
            values[name] = make(fact)
        written: Message = kind(**values)
        return written

    return write


def _conversion(field: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts a field's values; None if they are used unchanged."""
    change: Callable[[Any], Any]
    if field.message_type is not None:
        change = _writer(message_factory.GetMessageClass(field.message_type))
    elif field.enum_type is not None:
        change = _Numbers(field.enum_type).__getitem__
    else:
        return None
    return (lambda facts: list(map(change, facts))) if field.is_repeated else change


class _Numbers(dict[StrEnum, Any]):
    """The numbers of an enum, by the core's names."""

    def __init__(self, enum: EnumDescriptor) -> None:
        super().__init__()
        self._enum = enum
        self._prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper() + "_"

    def __missing__(self, name: StrEnum) -> Any:
        unset = name == _UNSPECIFIED.get(self._enum.name)
        number: int = 0 if unset else self._enum.values_by_name[self._prefix + name.name].number
        self[name] = number
        return number


def _of_item(of: Any) -> str:
    return plain_name(of.item.tool)


def _timestamp(seconds: float) -> Timestamp:
    nanoseconds = round(seconds * 1e9)
    return Timestamp(seconds=nanoseconds // 10**9, nanos=nanoseconds % 10**9)


_SIZE_KINDS: Final = _Numbers(trim_pb2.SizeKind.DESCRIPTOR)


def _kinds(size: HistorySize) -> list[trim_pb2.KindTokens]:
    return [
        trim_pb2.KindTokens(
            kind=_SIZE_KINDS[kind], tokens_sent=of.tokens_sent, tokens_returned=of.tokens_returned, items=of.items
        )
        for kind, of in size.by_kind.items()
    ]


_Made = Mapping[str, str | Callable[[Any], Any] | None]
_ITEM: Final[_Made] = {
    **{name: f"item.{name}" for name in ("stash_id", "role", "kind", "iteration")},
    "tool": _of_item,
}
_MADE: Final[Mapping[type[Message], _Made]] = {
    comparison_pb2.PromptBill: {"kept_tokens": "kept", "new_tokens": "new"},
    retrieve_pb2.RetrieveContentResponse: {
        field.name: f"page.{field.name}"
        for field in retrieve_pb2.RetrieveContentResponse.DESCRIPTOR.fields
        if field.name not in {"outcome", "message"}
    },
    run_pb2.RunFigures: {
        "started": lambda run: _timestamp(run.started),
        "last_seen": lambda run: _timestamp(run.last_seen),
        "history_size": "size",
        "repeated_calls": "repeated.calls",
        "repeated_tokens": "repeated.tokens",
        "handled": lambda run: [
            run_pb2.HandledCount(outcome=outcome, count=count) for outcome, count in run.requests.handled.items()
        ],
        "untrimmed": "requests.untrimmed",
        "protected_text_leaves": lambda run: None if run.tokens is None else run.tokens.protected_leaves,
        "recall": "requests.recall",
        "failed_calls": "usage.failures",
    },
    run_pb2.StashFigures: {
        "retrievals": lambda stash: [
            run_pb2.OutcomeCount(outcome=outcome.name, count=count) for outcome, count in stash.retrievals.items()
        ]
    },
    search_pb2.InPrompt: _ITEM,
    search_pb2.Snippet: {
        **_ITEM,
        "call_id": "item.call_id",
        "content_type": "item.content_type",
        "total_bytes": "item.size",
    },
    tool_pb2.ToolDefinition: {"parameters_json": "parameters", "definition_json": "definition"},
    tool_pb2.CallToolResponse: {
        "tasks": lambda answer: (
            None
            if answer.tasks is None
            else task_pb2.ListTasksResponse(
                tasks=messages(task_pb2.TaskItem, answer.tasks.items), not_shared=answer.tasks.not_shared
            )
        )
    },
    trim_pb2.TrimPromptResponse: {
        # `pieces.py` adds these five.
        "json_body": None,
        "conversation": None,
        "trims": None,
        "stash_entries": None,
        "edits": None,
        **{
            name: f"prompt.{name}"
            for name in ("own_text", "revision", "thinking_invalid_from", "observed_only", "edits_since_base")
        },
        **{name: f"trimmed.{name}" for name in ("compacted", "not_stashable")},
        **{name: f"guard.{name}" for name in ("findings", "ceilings")},
        "no_fit_reason": "no_fit",
        "protected_text_leaves": "tokens.protected_leaves",
        "history_size": "size",
        "crossed_percent": "news.crossed",
        "repeated_calls": "news.repeated",
        "comparison": "savings.comparison",
    },
    trim_pb2.StashEntry: {"arguments_summary": "arguments"},
    trim_pb2.TokenFigures: {"calibration_factor": "factor"},
    trim_pb2.CacheFigures: {
        "first_changed_message": "first_changed",
        "kept_prefix_tokens": "kept",
        "rewritten_tokens": "rewritten",
    },
    trim_pb2.HistorySize: {"kinds": _kinds},
    trim_pb2.RepeatedCall: {"tool": lambda call: plain_name(call.tool), "message_index": "message"},
    usage_pb2.ReportUsageResponse: {
        "error_percent": lambda answer: 100 * answer.error,
        "calibration_use": "calibrated",
        "cache_use": "cache",
        "cached_tokens_expected": "cached_expected",
    },
}
"""For each message the fields that are not an attribute of the same name: a path of attributes, or a function of the
fact; None if the field is left out."""
