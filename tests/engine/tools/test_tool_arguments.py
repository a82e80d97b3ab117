"""What models send as arguments: what is unambiguous is taken, all else is refused by name."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from prompt_sidecar.engine.tools.tool_arguments import (
    ARGUMENTS_BYTES,
    CONTEXT_LINES,
    BadArgument,
    Members,
    asked,
    members,
    new_status,
    new_tasks,
    query,
)
from prompt_sidecar.facts.task_calls import TaskStatus
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.selection import LineRange, PatternMatch, Selection
from tests.steps import growth

ID = "ab3dq7ghjk"
DONE, DOING, WAITING = TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS, TaskStatus.PENDING


def searched_for(arguments: Members) -> SearchQuery:
    """The search that arguments ask for."""
    return query(arguments, SearchLimits(), 1_460)


def searched(**arguments: Any) -> SearchQuery:
    """The search that these arguments ask for."""
    return searched_for({"query": "x"} | arguments)


@pytest.mark.parametrize("text", [
    '{"id": "x"}', ' \n{"id": "x"} ', '"{\\"id\\": \\"x\\"}"', json.dumps(json.dumps({"id": "x"})),
])  # fmt: skip
def test_an_object_may_stand_in_a_string(text: str) -> None:
    """Once, as some clients encode twice; white space is no matter."""
    assert {"id": "x"} == members(text)


@pytest.mark.parametrize("text", ["", "  ", "{}", "null", '""', '"{}"', '" "', '"null"'])
def test_nothing_is_no_arguments(text: str) -> None:
    """Empty text, null and an empty object are one."""
    assert {} == members(text)


@pytest.mark.parametrize(("text", "message"), [
    ("[1]", "the arguments are a list; accepted: a JSON object"),
    ("7", "the arguments are a number"),
    ("true", "the arguments are a boolean"),
    (json.dumps(json.dumps(json.dumps({"id": "x"}))), "the arguments are a string"),
    ('{"id": ', "the argument text is not strict JSON"),
    ("id: x", "the argument text is not strict JSON"),
    ("{'id': 'x'}", "the argument text is not strict JSON"),
    ('{"id": "a", "id": "b"}', "the same key twice"),
    ('{"id": "\ud800"}', "not strict JSON"),
    ('{"id": ' + "[" * 5_000 + "]" * 5_000 + "}", "the argument text is"),
    ('{"id": "' + "x" * ARGUMENTS_BYTES + '"}', "bytes; accepted: 65,536"),
    (" " * 10 + "漢" * (ARGUMENTS_BYTES // 3 + 1), "bytes; accepted: 65,536"),
])  # fmt: skip
def test_what_is_no_object_is_refused(text: str, message: str) -> None:
    """The message says what it is, and never holds any of it."""
    with pytest.raises(BadArgument) as caught:
        members(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize("written", [
    ID, f" {ID}\n", f'"{ID}"', f"'{ID}'", f"[{ID}]", f"<{ID}>", f"`{ID}`", f"id={ID}", f"id: {ID}", f"[id={ID}]",
    f'id="{ID}"', f"#{ID}", ID.upper(), [ID], f"({ID}).",
    f"[content elided to fit context window — id={ID}, 48,210 bytes]",
])  # fmt: skip
def test_an_id_is_taken_from_what_is_around_it(written: Any) -> None:
    """Quotes, brackets, `id=`, or the whole label."""
    assert (ID, None, 0) == asked({"id": written})


@pytest.mark.parametrize(("written", "looked_up"), [
    ("made up", "made up"), ("漢字", "漢字"), (12345, "0000012345"), ("x" * 5_000, "x" * 64), ("../../etc", "/../etc"),
])  # fmt: skip
def test_any_other_id_is_looked_up_as_it_is(written: Any, looked_up: str) -> None:
    """It is not found like every other; a long one is cut to more than an id has, so that it is none by chance."""
    assert looked_up == asked({"id": written})[0]


@pytest.mark.parametrize(("call", "message"), [
    ({}, "id is missing"), ({"id": None}, "id is missing"), ({"id": "  "}, "id is missing"),
    ({"id": []}, "id is a list"), ({"id": [ID, ID]}, "id is a list; accepted: one id"),
    ({"id": {}}, "id is an object"), ({"id": True}, "id is a boolean"),
    ({"id": f"id={ID} id=mn4pq8rstv"}, "id holds several ids; accepted: one"), ({"id": 1.5}, "id is a number"),
    ({"stash": ID}, "id is missing"),
])  # fmt: skip
def test_without_one_id_it_says_so(call: dict[str, Any], message: str) -> None:
    """None, or more than one."""
    with pytest.raises(BadArgument, match=message):
        asked(call)


@pytest.mark.parametrize(("call", "selection", "offset"), [
    ({}, None, 0),
    ({"pattern": None, "first_line": None, "last_line": None, "offset": None}, None, 0),
    ({"pattern": "", "first_line": 0, "last_line": 0, "offset": 0}, None, 0),
    ({"first_line": "null", "last_line": "", "offset": "none"}, None, 0),
    ({"first_line": 1}, None, 0),
    ({"first_line": 1, "last_line": -1}, None, 0),
    ({"first_line": 3, "last_line": 0}, LineRange(3, 0), 0),
    ({"last_line": 9}, LineRange(1, 9), 0),
    ({"first_line": "3", "last_line": "1,200"}, LineRange(3, 1_200), 0),
    ({"first_line": 3.0, "last_line": " 9 "}, LineRange(3, 9), 0),
    ({"first_line": [3], "last_line": "9.0"}, LineRange(3, 9), 0),
    ({"offset": "16000"}, None, 16_000),
    ({"pattern": "a|b", "first_line": 1}, PatternMatch("a|b", CONTEXT_LINES, ignore_case=True), 0),
    ({"pattern": 404, "offset": 7}, PatternMatch("404", CONTEXT_LINES, ignore_case=True), 7),
    ({"pattern": "null"}, PatternMatch("null", CONTEXT_LINES, ignore_case=True), 0),
    ({"unknown": {"deep": []}}, None, 0),
])  # fmt: skip
def test_ranges_are_read_however_they_are_written(call: dict[str, Any], selection: Selection, offset: int) -> None:
    """Numbers as strings, null, zero or an empty string for what is left out, unknown members ignored."""
    assert (ID, selection, offset) == asked({"id": ID} | call)


@pytest.mark.parametrize(("call", "message"), [
    ({"first_line": -4}, "first_line is -4; accepted: 1 or more"),
    ({"last_line": -2}, "last_line is -2; accepted: first_line or more"),
    ({"offset": -1}, "offset is -1; accepted: 0, or the offset that the page before stated"),
    ({"offset": "next"}, "offset is no number"),
    ({"offset": 1.5}, "offset is a number"),
    ({"offset": 10**15}, "offset is a number"),
    ({"offset": "9" * 400}, "offset is no number"),
    ({"offset": float("inf")}, "offset is a number"),
    ({"offset": True}, "offset is a boolean"),
    ({"offset": [1, 2]}, "offset is a list"),
    ({"offset": "１"}, "offset is no number"),
    ({"pattern": {}}, "pattern is an object; accepted: a string"),
    ({"pattern": "x", "first_line": 2}, "pattern and first_line or last_line are both given"),
    ({"pattern": "x", "last_line": 2}, "pattern and first_line or last_line are both given"),
])  # fmt: skip
def test_a_range_that_is_none_is_refused(call: dict[str, Any], message: str) -> None:
    """The message names the argument and what it may be."""
    with pytest.raises(BadArgument) as caught:
        asked({"id": ID} | call)
    assert message in str(caught.value)
    assert "accepted: " in str(caught.value)


@pytest.mark.parametrize(("call", "roles"), [
    ({}, set()), ({"role": None}, set()), ({"role": ""}, set()), ({"role": "any"}, set()),
    ({"role": "Tool"}, {Role.TOOL}),
    ({"role": ["user", "ASSISTANT"]}, {Role.USER, Role.ASSISTANT}), ({"role": '["user"]'}, {Role.USER}),
    ({"role": "tool result"}, {Role.TOOL}), ({"role": "model"}, {Role.ASSISTANT}), ({"role": []}, set()),
])  # fmt: skip
def test_roles_are_read_in_whatever_case(call: dict[str, Any], roles: set[Role]) -> None:
    """One, some, or all by leaving it out."""
    assert roles == searched(**call).roles


@pytest.mark.parametrize(("call", "tools"), [
    ({}, set()), ({"tool": ""}, set()), ({"tool": None}, set()), ({"tool": " read "}, {"read"}),
    ({"tool": ["read", "grep"]}, {"read", "grep"}), ({"tool": '["read"]'}, {"read"}), ({"tool": "[read"}, {"[read"}),
])  # fmt: skip
def test_tools_are_read_as_they_are(call: dict[str, Any], tools: set[str]) -> None:
    """Names are the agent's own."""
    assert tools == searched(**call).tools


def test_a_search_has_all_its_parts() -> None:
    """Within the bounds that are given."""
    expected = SearchQuery("pool timeout", first_iteration=3, last_iteration=9, max_snippets=2, total_tokens=1_460)
    assert expected == searched(query=" pool timeout ", first_iteration="3", last_iteration=9.0, max_results="2")
    assert (5, 0) == (searched(max_results=50).max_snippets, searched(last_iteration=-1).last_iteration)
    assert ("404", 5) == (searched(query=404).query, searched().max_snippets)


@pytest.mark.parametrize(("call", "message"), [
    ({"query": ""}, "query is missing or empty"),
    ({"query": None}, "query is missing or empty"),
    ({"query": ["a", "b"]}, "query is a list; accepted: a string"),
    ({"role": "system"}, "role is none of these; accepted: user, assistant, tool"),
    ({"role": ["user", 3]}, "role[1] is a number; accepted: user, assistant, tool"),
    ({"tool": 3}, "tool is a number"),
    ({"tool": "x" * 129}, "tool has 129 characters; accepted: 128"),
    ({"tool": ["x"] * 65}, "tool has 65 names; accepted: 64"),
    ({"first_iteration": 5, "last_iteration": 4}, "last_iteration is 4; accepted: 5 (first_iteration) or more"),
    ({"max_results": -1}, "max_results is -1; accepted: 1 to 5"),
])  # fmt: skip
def test_a_search_that_is_none_is_refused(call: dict[str, Any], message: str) -> None:
    """The message names the argument and what it may be."""
    with pytest.raises(BadArgument) as caught:
        searched(**call)
    assert message in str(caught.value)


@pytest.mark.parametrize(("tasks", "texts", "statuses"), [
    (["a", "b"], ["a", "b"], ()),
    ("a", ["a"], ()),
    ('["a", "b"]', ["a", "b"], ()),
    ("[not] json", ["[not] json"], ()),
    ([], [], ()),
    ({"content": "a"}, ["a"], ()),
    ([{"content": "a"}, {"task": "b"}, {"text": "c"}, "d"], ["a", "b", "c", "d"], ()),
    ([{"content": "a", "status": "completed"}, {"content": "b"}], ["a", "b"], (DONE, WAITING)),
    ([{"content": "a", "status": "In Progress", "activeForm": "doing"}, "b"], ["a", "b"], (DOING, WAITING)),
    ([{"text": "a", "status": None}], ["a"], ()),
])  # fmt: skip
def test_tasks_are_read_in_every_agents_way(tasks: Any, texts: list[str], statuses: tuple[TaskStatus, ...]) -> None:
    """Strings, one string, objects of other task tools with their statuses, or any of it inside a string."""
    items, append, stand = new_tasks({"tasks": tasks})
    assert (texts, list(statuses), False) == (items, list(stand), append)


@pytest.mark.parametrize(("mode", "append"), [
    (None, False), ("", False), ("REPLACE", False), ("Append", True), (["append"], True), ("add", True),
])  # fmt: skip
def test_the_mode_is_replace_unless_it_is_append(mode: Any, append: bool) -> None:
    """In whatever case."""
    assert append is new_tasks({"tasks": ["a"], "mode": mode})[1]


@pytest.mark.parametrize(("call", "message"), [
    ({}, "tasks is missing; accepted: a list of strings"),
    ({"tasks": 3}, "tasks is a number; accepted: a list of strings"),
    ({"tasks": ["a", 3]}, "tasks[1] is a number; accepted: a string"),
    ({"tasks": [["a"]]}, "tasks[0] is a list"),
    ({"tasks": [{"done": True}]}, "tasks[0] is an object without content"),
    ({"tasks": [{"text": "a", "status": "later"}]}, "tasks[0].status is none of these; accepted: pending, in_progress"),
    ({"tasks": ["a"], "mode": "merge"}, "mode is none of these; accepted: replace, append"),
    ({"tasks": ["a"], "mode": 1}, "mode is a number; accepted: replace, append"),
])  # fmt: skip
def test_tasks_that_are_none_are_refused(call: dict[str, Any], message: str) -> None:
    """The message names the place and what may be there."""
    with pytest.raises(BadArgument) as caught:
        new_tasks(call)
    assert message in str(caught.value)


@pytest.mark.parametrize("number", [3, 3.0, "3", " 3 ", "#3", "[3]", "task 3", "Task #3", "id=3", '"3"', [3], ["3"]])
def test_a_tasks_number_is_read_however_it_is_written(number: Any) -> None:
    """With what models put around it."""
    assert (3, DONE) == new_status({"id": number, "status": "completed"})


@pytest.mark.parametrize(("written", "status"), [
    ("pending", WAITING), ("IN_PROGRESS", DOING), ("in progress", DOING), ("in-progress", DOING), ("Done", DONE),
    (" completed ", DONE), ('"todo"', WAITING), (["completed"], DONE),
])  # fmt: skip
def test_a_status_is_read_in_whatever_spelling(written: Any, status: TaskStatus) -> None:
    """Case, blanks, hyphens, and the commonest other words."""
    assert (1, status) == new_status({"id": 1, "status": written})


@pytest.mark.parametrize(("call", "message"), [
    ({"status": "done"}, "id is missing; accepted: the number of a task"),
    ({"id": "the first", "status": "done"}, "id is no number"),
    ({"id": "- 3", "status": "done"}, "id is no number"),
    ({"id": "1 2", "status": "done"}, "id is no number"),
    ({"id": [1, 2], "status": "done"}, "id is a list"),
    ({"id": 1.5, "status": "done"}, "id is a number"),
    ({"id": 1}, "status is missing; accepted: pending, in_progress, completed"),
    ({"id": 1, "status": "later"}, "status is none of these; accepted: pending, in_progress, completed"),
    ({"id": 1, "status": 2}, "status is a number; accepted: pending, in_progress, completed"),
])  # fmt: skip
def test_a_status_that_is_none_is_refused(call: dict[str, Any], message: str) -> None:
    """The message names the argument and what it may be."""
    with pytest.raises(BadArgument) as caught:
        new_status(call)
    assert message in str(caught.value)


@pytest.mark.parametrize("unit", ["-", "[", "id=", "id ", " ", "9", "1 ", "task ", "\0", "_", "#-"])
def test_hostile_arguments_cost_linear_time(unit: str) -> None:
    """The longest arguments that are taken, in every place, are read, and in steps that grow as they do."""
    good = {"id": ID, "query": "x", "tasks": [], "status": "done"}

    def read_all(size: int) -> None:
        text = unit * (size // len(unit))
        for read in (asked, searched_for, new_tasks, new_status):
            for name in ("id", "pattern", "offset", "query", "role", "tool", "tasks", "mode", "status"):
                with suppress(BadArgument):
                    read(good | {name: text})

    assert growth(read_all, 2_000, 8) < 12
    read_all(ARGUMENTS_BYTES)
