"""A run's task list: changed whole or not at all, once for each request, and shown as inert data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.tools.task_records import REQUESTS
from prompt_sidecar.engine.tools.tasks import MAX_TASKS, MAX_TEXT, MAX_UNSEEN, TaskList, lines, open_lines
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus
from prompt_sidecar.tokens import Counter, load

PENDING, IN_PROGRESS, COMPLETED = TaskStatus.PENDING, TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED


@cache
def counter() -> Counter:
    """What counts, made once."""
    return Counter({"o200k_base": load("o200k_base")})


def count(text: str) -> int:
    """Tokens."""
    return counter().count(text, "o200k_base")


def made(*texts: str) -> TaskList:
    """A list of these tasks."""
    tasks = TaskList()
    tasks.create(texts)
    return tasks


def texts(tasks: TaskList) -> list[str]:
    """What it holds."""
    return [task.text for task in tasks.items]


def refused(work: Callable[[], object]) -> tuple[str, str]:
    """The field and the message of what is refused."""
    with pytest.raises(InvalidRequest) as caught:
        work()
    return caught.value.field, caught.value.message


def test_tasks_are_numbered_from_one() -> None:
    """Each begins as pending, and white space around its text is dropped."""
    tasks = TaskList()
    assert (TaskItem(1, "read"), TaskItem(2, "write")) == tasks.create([" read\n", "write"])
    assert tuple(tasks.items) == (TaskItem(1, "read", PENDING), TaskItem(2, "write", PENDING))


def test_appended_tasks_go_on_counting() -> None:
    """They follow those that are there, which stay as they are."""
    tasks = made("read")
    tasks.update(1, COMPLETED)
    tasks.create(["write"], append=True)
    assert [TaskItem(1, "read", COMPLETED), TaskItem(2, "write")] == list(tasks.items)


def test_replacing_begins_at_one_again() -> None:
    """Whatever was there is gone; an empty list removes all."""
    tasks = made("read", "write")
    assert [TaskItem(1, "rest")] == list(tasks.create(["rest"]))
    assert [] == list(tasks.create([]))


def test_appending_nothing_changes_nothing() -> None:
    """An empty list is no error."""
    assert ["read"] == [task.text for task in made("read").create([], append=True)]


def test_statuses_can_come_with_the_tasks() -> None:
    """An agent that writes its whole list anew keeps what is done."""
    created = TaskList().create(["a", "b"], statuses=[COMPLETED, IN_PROGRESS])
    assert [COMPLETED, IN_PROGRESS] == [task.status for task in created]


def test_a_status_moves_freely() -> None:
    """Also back, and to where it stands already."""
    tasks = made("read", "write")
    for status in (COMPLETED, PENDING, IN_PROGRESS, IN_PROGRESS):
        assert [status, PENDING] == [task.status for task in tasks.update(1, status)]


def test_unfinished_are_those_not_completed() -> None:
    """By number."""
    tasks = made("a", "b", "c")
    tasks.update(1, COMPLETED)
    tasks.update(3, IN_PROGRESS)
    assert [2, 3] == [task.id for task in tasks.unfinished]


@pytest.mark.parametrize("text", ["", "  \n", "x" * (MAX_TEXT + 1), "half \ud800", "\u200b" * (MAX_UNSEEN + 1)])
@pytest.mark.parametrize("append", [False, True])
def test_a_bad_text_changes_nothing(text: str, append: bool) -> None:
    """The error names the text's place; the good ones beside it are not kept."""
    tasks = made("kept")
    field, message = refused(lambda: tasks.create(["good", text], append=append))
    assert "items[1]" == field
    assert "accepted" in message
    assert ["kept"] == texts(tasks)


def test_the_longest_text_is_taken() -> None:
    """Characters are counted, not bytes, and white space around them is not."""
    assert ["漢" * MAX_TEXT] == texts(made("  " + "漢" * MAX_TEXT + "\n"))


def test_there_is_a_most_of_tasks() -> None:
    """A list is refused as a whole, and appended ones count with those that are there."""
    tasks = made(*(str(number) for number in range(MAX_TASKS)))
    field, message = refused(lambda: tasks.create(["one more"], append=True))
    assert ("items", True) == (field, str(MAX_TASKS) in message)
    assert "items" == refused(lambda: tasks.create(["x"] * (MAX_TASKS + 1)))[0]
    assert MAX_TASKS == len(tasks.items)


@pytest.mark.parametrize("number", [0, -1, 3, 10**9])
def test_an_unknown_number_is_refused(number: int) -> None:
    """The message says which there are."""
    tasks = made("a", "b")
    assert ("id", f"id is {number}; accepted: 1 to 2") == refused(lambda: tasks.update(number, COMPLETED))
    assert [PENDING, PENDING] == [task.status for task in tasks.items]


def test_without_tasks_no_number_is_known() -> None:
    """The message says that there are none."""
    assert "no tasks" in refused(lambda: TaskList().update(1, COMPLETED))[1]


def test_a_retry_changes_nothing() -> None:
    """The same request id is the same change, whatever it holds, also after other changes."""
    tasks = TaskList()
    tasks.create(["a"], append=True, request_id="r1")
    tasks.update(1, COMPLETED, request_id="r2")
    assert ["a"] == [task.text for task in tasks.create(["a"], append=True, request_id="r1")]
    assert ["a"] == [task.text for task in tasks.create([""], request_id="r1")]
    tasks.update(1, IN_PROGRESS)
    assert [IN_PROGRESS] == [task.status for task in tasks.update(1, COMPLETED, request_id="r2")]
    assert [IN_PROGRESS] == [task.status for task in tasks.update(99, COMPLETED, request_id="r1")]


def test_what_was_refused_can_be_corrected() -> None:
    """A request id counts once its change was made."""
    tasks = TaskList()
    refused(lambda: tasks.create([""], request_id="r"))
    assert ["a"] == [task.text for task in tasks.create(["a"], request_id="r")]


def test_without_a_request_id_each_call_is_a_change() -> None:
    """Two calls append twice."""
    tasks = made("a")
    tasks.create(["b"], append=True)
    tasks.create(["b"], append=True)
    assert ["a", "b", "b"] == texts(tasks)


def test_memory_of_requests_is_bounded() -> None:
    """The oldest is forgotten when one more comes than are remembered."""
    tasks = made("a")
    for number in range(REQUESTS + 1):
        tasks.update(1, COMPLETED, request_id=str(number))
    tasks.update(1, PENDING)
    assert PENDING is tasks.update(1, COMPLETED, request_id="1")[0].status
    assert COMPLETED is tasks.update(1, COMPLETED, request_id="0")[0].status


def test_lines_quote_the_text() -> None:
    """Letters of any script stay readable; quotes, controls and what is not seen are escaped."""
    tasks = made('say "hi"\nnow', "naïve 漢字", "a\u202eb\x7f\u2028\U000e0041")
    tasks.update(2, IN_PROGRESS)
    expected = [
        '1 [pending] "say \\"hi\\"\\nnow"',
        '2 [in_progress] "naïve 漢字"',
        '3 [pending] "a\\u202eb\\u007f\\u2028\\udb40\\udc41"',
    ]
    assert expected == lines(tasks.items).split("\n")


TEXTS = st.text(min_size=1, max_size=60).filter(lambda text: bool(text.strip()))


@given(st.lists(TEXTS, max_size=6))
def test_every_line_reads_back(items: list[str]) -> None:
    """One line a task, all of it printable, from which the very text can be read."""
    try:
        tasks = TaskList().create(items)
    except InvalidRequest:
        return
    shown = lines(tasks).split("\n") if tasks else []
    assert [text.strip() for text in items] == [json.loads(line.split("] ", 1)[1]) for line in shown]
    assert all(line.isprintable() for line in shown)


def test_open_lines_begin_with_what_is_at_hand() -> None:
    """In progress first, then by number; the completed are not shown."""
    tasks = made("a", "b", "c", "d")
    tasks.update(1, COMPLETED)
    tasks.update(3, IN_PROGRESS)
    expected = '3 open tasks:\n3 [in_progress] "c"\n2 [pending] "b"\n4 [pending] "d"'
    assert expected == open_lines(tasks.items, 100, count)


def test_open_lines_say_what_they_leave_out() -> None:
    """Within fewer tokens there are fewer lines, and the rest is counted."""
    tasks = made(*(f"step {number} of the long plan" for number in range(9)))
    shown = open_lines(tasks.items, 60, count).split("\n")
    assert ("9 open tasks:", f"and {9 - (len(shown) - 2)} more") == (shown[0], shown[-1])
    assert 3 < len(shown) < 10


@pytest.mark.parametrize(("tasks", "tokens", "expected"), [
    ([], 100, ""),
    ([TaskItem(1, "a", COMPLETED)], 100, ""),
    ([TaskItem(1, "word " * 40)], 10, "1 open task."),
    ([TaskItem(1, "a"), TaskItem(2, "b")], 4, "2 open tasks."),
    ([TaskItem(1, "a")], 2, ""),
])  # fmt: skip
def test_open_lines_at_their_ends(tasks: Sequence[TaskItem], tokens: int, expected: str) -> None:
    """Nothing open gives nothing; little room gives the number alone; less gives nothing."""
    assert expected == open_lines(tasks, tokens, count)


@given(
    st.lists(st.tuples(TEXTS, st.sampled_from(list(TaskStatus))), max_size=12),
    st.integers(0, 120),
)
def test_open_lines_keep_within_their_tokens(tasks: list[tuple[str, TaskStatus]], tokens: int) -> None:
    """Whatever there is, and whatever the room."""
    items = [TaskItem(number, text, status) for number, (text, status) in enumerate(tasks, 1)]
    assert count(open_lines(items, tokens, count)) <= tokens
