"""What a model meant by its arguments: what is unambiguous is accepted, the rest gets a helpful answer.

Models send numbers as strings, null or an empty string for what they leave out, a string where a list is wanted, their
own kind of task objects, an id with the label's brackets around it, and an object inside a string. None of that is
worth a turn of the conversation. What cannot be understood raises `BadArgument`, whose message names the argument, what
was wrong and what is accepted. It never contains text that the model wrote, as a hostile page may have dictated it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from prompt_sidecar.engine.tools.definitions import MODES, ROLES
from prompt_sidecar.engine.tools.shown_before import Range
from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.facts.task_calls import TaskStatus
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.selection import LineRange, PatternMatch, Selection
from prompt_sidecar.trim.ids import ID_CHARACTERS

ARGUMENTS_BYTES: Final = 65_536
"""Bytes of a call's arguments: fifty tasks, escaped, take half of it."""
CONTEXT_LINES: Final = 2
"""Lines shown around a line that matches: enough to see what it belongs to; a line range shows more."""
MOST_TOOLS: Final = 64
"""Names of tools in one search: as many as a request of a program may have."""
MOST_NAME: Final = 128
"""Characters of a tool's name in a search: twice what providers accept."""
MOST_ID: Final = 64
"""Characters of an id that are looked up: more than an id has, so that a truncated one is never an id by chance."""
MOST_LABEL: Final = 512
"""Characters that are searched for an id: a whole label has about a hundred."""

T = TypeVar("T")

_DIGITS: Final = 15
"""Digits of a number: all counts of bytes, lines and iterations have fewer, and doubles represent them exactly."""
_NUMBER: Final = re.compile(rf"([+-]?\d{{1,{_DIGITS}}})(?:\.0+)?", re.ASCII)
_TASK_NUMBER: Final = re.compile(r"[^\w-]*(?:(?:task|id)[^\w-]*)?(\d{1,9})\W*", re.ASCII | re.IGNORECASE)
_LABELLED_ID: Final = re.compile(r"\bid\s*[=:]\s*[\"']?([a-z0-9]+)", re.ASCII | re.IGNORECASE)
_AROUND_ID: Final = "\"'`[](){}<>#=:;,. \t\r\n"
_NONE: Final = frozenset({"", "null", "none", "any", "all", "undefined"})
"""What models write for a choice or a number that they mean to omit."""
_TASK_TEXT: Final = ("content", "task", "text", "title", "description")
"""The names under which agents' own task tools hold the text."""

_ROLES: Final[Mapping[str, Role]] = {
    **{str(role): role for role in ROLES},
    "human": Role.USER,
    "model": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "tool_result": Role.TOOL,
    "function": Role.TOOL,
}
_MODES: Final[Mapping[str, bool]] = {"replace": False, "append": True, "overwrite": False, "add": True}
_STATUSES: Final[Mapping[str, TaskStatus]] = {
    **{str(status): status for status in TaskStatus},
    "todo": TaskStatus.PENDING,
    "open": TaskStatus.PENDING,
    "not_started": TaskStatus.PENDING,
    "inprogress": TaskStatus.IN_PROGRESS,
    "started": TaskStatus.IN_PROGRESS,
    "active": TaskStatus.IN_PROGRESS,
    "complete": TaskStatus.COMPLETED,
    "done": TaskStatus.COMPLETED,
    "finished": TaskStatus.COMPLETED,
}

Members = Mapping[str, Any]
"""A call's arguments, decoded."""


class BadArgument(Exception):
    """An argument that cannot be understood; the message is for the model and holds nothing that it wrote."""


def members(arguments: str) -> Members:
    """Decode a call's arguments: a JSON object, or a string that contains one; empty and null are no arguments."""
    value: Any = arguments
    for _ in range(2):
        if type(value) is str:
            value = _decoded(value)
    if value is None:
        return {}
    if type(value) is not dict:
        raise BadArgument(f"the arguments are {_kind(value)}; accepted: a JSON object")
    return value


def asked(call: Members) -> Range:
    """Return what a call of the recall tool asks for."""
    stash_id = _stash_id(call)
    pattern = _text(call, "pattern")
    first = _number(call, "first_line", "1 or more")
    last = _number(call, "last_line", "first_line or more", end=True)
    offset = _number(call, "offset", "0, or the offset that the page before stated")
    selection: Selection = None
    if pattern:
        if first > 1 or last:
            raise BadArgument("pattern and first_line or last_line are both given; accepted: one or the other")
        selection = PatternMatch(pattern, CONTEXT_LINES, ignore_case=True)
    elif first > 1 or last:
        selection = LineRange(max(first, 1), last)
    return stash_id, selection, offset


def query(call: Members, limits: SearchLimits, total_tokens: int) -> SearchQuery:
    """Return the query of a call of the search tool, within the limits of the tool and `total_tokens`."""
    words = _text(call, "query").strip()
    if not words:
        raise BadArgument("query is missing or empty; accepted: words to look for")
    first = _number(call, "first_iteration", "1 or more")
    last = _number(call, "last_iteration", "first_iteration or more", end=True)
    if 0 < last < first:
        raise BadArgument(f"last_iteration is {last}; accepted: {first} (first_iteration) or more")
    most = _number(call, "max_results", f"1 to {limits.max_snippets}")
    return SearchQuery(
        query=words,
        roles=frozenset(
            _choice(each, f"role{at}", _ROLES, ROLES) for at, each in _several(call, "role") if not _left_out(each)
        ),
        tools=_tools(call),
        first_iteration=first,
        last_iteration=last,
        max_snippets=min(most or limits.max_snippets, limits.max_snippets),
        total_tokens=total_tokens,
    )


def new_tasks(call: Members) -> tuple[Sequence[str], bool, Sequence[TaskStatus]]:
    """Return what create_tasks creates: texts, whether they are appended, and their statuses, if given.

    The task list checks their number and length.
    """
    value = call.get("tasks")
    if value is None:
        raise BadArgument("tasks is missing; accepted: a list of strings")
    if type(value) is str:
        value = _listed(value)
    elif type(value) is dict:
        value = [value]
    if type(value) is not list:
        raise BadArgument(f"tasks is {_kind(value)}; accepted: a list of strings")
    texts = [_task_text(each, f"tasks[{at}]") for at, each in enumerate(value)]
    given = [_status_of(each) for each in value]
    statuses = [
        _choice(each, f"tasks[{at}].status", _STATUSES, TaskStatus) if each is not None else TaskStatus.PENDING
        for at, each in enumerate(given)
    ]
    mode = call.get("mode")
    append = not _left_out(mode) and _choice(mode, "mode", _MODES, MODES)
    return texts, append, statuses if any(each is not None for each in given) else ()


def new_status(call: Members) -> tuple[int, TaskStatus]:
    """Return which task a call of update_task means, and its new status."""
    value = _alone(call.get("id"))
    matched = _TASK_NUMBER.fullmatch(value) if type(value) is str else None
    number = int(matched[1]) if matched else _integer(value)
    if number is None:
        what = "is missing" if value is None else f"is {_kind(value)}" if type(value) is not str else "is no number"
        raise BadArgument(f"id {what}; accepted: the number of a task")
    status = call.get("status")
    if status is None:
        raise BadArgument(f"status is missing; accepted: {', '.join(TaskStatus)}")
    return number, _choice(status, "status", _STATUSES, TaskStatus)


def _decoded(text: str) -> Any:
    raw = text.strip().encode("utf-8", "surrogatepass")
    if len(raw) > ARGUMENTS_BYTES:
        raise BadArgument(f"the arguments have {len(raw):,} bytes; accepted: {ARGUMENTS_BYTES:,}")
    if not raw:
        return None
    try:
        return load(raw, "the argument text")
    except (InvalidJson, TooLarge) as error:
        raise BadArgument(f"{error.message}; accepted: a JSON object") from None


def _stash_id(call: Members) -> str:
    value = _alone(call.get("id"))
    if type(value) is int:
        value = str(value).zfill(ID_CHARACTERS)
    if value is not None and type(value) is not str:
        raise BadArgument(f"id is {_kind(value)}; accepted: one id, as a string")
    text = (value or "")[:MOST_LABEL]
    labelled = set(_LABELLED_ID.findall(text))
    if len(labelled) > 1:
        raise BadArgument("id holds several ids; accepted: one, as a string")
    text = labelled.pop() if labelled else text.strip(_AROUND_ID)
    if not text:
        raise BadArgument("id is missing; accepted: the id that a label, the registry or a search result states")
    return text[:MOST_ID].lower()


def _text(call: Members, name: str) -> str:
    """Return a text, empty if it is omitted; a number becomes the text that it is written as."""
    value = _alone(call.get(name))
    if value is None:
        return ""
    if type(value) in (int, float):
        return str(value)
    if type(value) is not str:
        raise BadArgument(f"{name} is {_kind(value)}; accepted: a string")
    return value


def _tools(call: Members) -> frozenset[str]:
    names = set()
    given = _several(call, "tool")
    if len(given) > MOST_TOOLS:
        raise BadArgument(f"tool has {len(given):,} names; accepted: {MOST_TOOLS}")
    for at, each in given:
        if type(each) is not str:
            raise BadArgument(f"tool{at} is {_kind(each)}; accepted: a tool's name")
        if len(each) > MOST_NAME:
            raise BadArgument(f"tool{at} has {len(each):,} characters; accepted: {MOST_NAME}")
        if each.strip():
            names.add(each.strip())
    return frozenset(names)


def _number(call: Members, name: str, accepted: str, *, end: bool = False) -> int:
    """Return a count, 0 if it is omitted. `end`: -1 means the end, which is 0 as well."""
    value = _alone(call.get(name))
    if _left_out(value):
        return 0
    number = _integer(value)
    if number is None:
        what = "no number" if type(value) is str else _kind(value)
        raise BadArgument(f"{name} is {what}; accepted: {accepted}")
    if number == -1 and end:
        return 0
    if number < 0:
        raise BadArgument(f"{name} is {number}; accepted: {accepted}")
    return number


def _integer(value: Any) -> int | None:
    """Return a whole number however it is written, or None if it is not one, or longer than any count."""
    if type(value) is str:
        matched = _NUMBER.fullmatch(value.strip(" \t\r\n\"'`").replace(",", "").replace("_", ""))
        return int(matched[1]) if matched else None
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if whole and abs(value) < 10**_DIGITS else None


def _choice(value: Any, name: str, known: Mapping[str, T], accepted: Iterable[str]) -> T:
    """Return one of some words, in any case, with blanks or hyphens for underscores."""
    value = _alone(value)
    word = re.sub(r"[\s-]+", "_", value.strip().strip("\"'`").lower()) if type(value) is str else ""
    if word not in known:
        what = "none of these" if type(value) is str else _kind(value)
        raise BadArgument(f"{name} is {what}; accepted: {', '.join(accepted)}")
    return known[word]


def _several(call: Members, name: str) -> list[tuple[str, Any]]:
    """Return the values of an argument that may be one or a list, each with its place as errors name it."""
    value = call.get(name)
    if type(value) is str and value.lstrip().startswith("["):
        value = _listed(value)
    if type(value) is list:
        return [(f"[{at}]", each) for at, each in enumerate(value)]
    return [] if value is None else [("", value)]


def _listed(text: str) -> list[Any]:
    """Return the list that a string means: a list written as JSON, else the string alone."""
    if text.lstrip().startswith("["):
        try:
            value = load(text.encode("utf-8", "surrogatepass"), "")
        except (InvalidJson, TooLarge):
            return [text]
        if type(value) is list:
            return value
    return [text]


def _task_text(value: Any, name: str) -> str:
    if type(value) is dict:
        value = next((value[key] for key in _TASK_TEXT if type(value.get(key)) is str), None)
        if value is None:
            raise BadArgument(f"{name} is an object without content; accepted: a string")
    if type(value) is not str:
        raise BadArgument(f"{name} is {_kind(value)}; accepted: a string")
    return value


def _status_of(value: Any) -> Any:
    status = value.get("status") if type(value) is dict else None
    return None if _left_out(status) else status


def _left_out(value: Any) -> bool:
    return value is None or (type(value) is str and value.strip().lower() in _NONE)


def _alone(value: Any) -> Any:
    """Return the only element of a list of one; any other value unchanged."""
    return value[0] if type(value) is list and len(value) == 1 else value


def _kind(value: Any) -> str:
    """Return what a value is, for a message that must not contain it."""
    if value is None:
        return "null"
    kinds = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")
