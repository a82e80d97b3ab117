"""Tasks as records: whatever processes have heard of each other in whatever order, they come to the same list."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.engine.tools.task_records import from_earlier, items_of, merged
from prompt_sidecar.engine.tools.tasks import TaskList
from prompt_sidecar.facts.archived import TaskState
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus

PROCESSES = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PROCESSES - 1), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("replace"), st.integers(0, PROCESSES - 1), st.sampled_from("xyz"), st.booleans()),
        st.tuples(st.just("update"), st.integers(0, PROCESSES - 1), st.integers(0, 3), st.sampled_from(TaskStatus)),
        st.tuples(st.just("hear"), st.integers(0, PROCESSES - 1), st.integers(0, PROCESSES - 1), st.just(value=False)),
    ),
    max_size=12,
)


def played(steps: list[tuple[str, int, object, object]]) -> list[TaskState]:
    """The states of some processes that make changes and hear of each other now and then."""
    lists = [TaskList() for _ in range(PROCESSES)]
    for number, (what, at, value, more) in enumerate(steps):
        tasks, name = lists[at], f"request {value}" if more is True else ""
        if what in ("append", "replace"):
            tasks.create([f"{value}{number // 4}"], append=what == "append", request_id=name)
        elif what == "update" and isinstance(value, int) and value < len(tasks.items):
            tasks.update(tasks.items[value].id, TaskStatus(str(more)))
        elif what == "hear" and isinstance(value, int):
            tasks.restore(lists[value].state())
    return [tasks.state() for tasks in lists]


@given(STEPS)
def test_a_merge_does_not_depend_on_order_or_repetition(steps: list[tuple[str, int, object, object]]) -> None:
    """It is commutative, associative and idempotent, and takes nothing of what it was made of away again."""
    one, two, three = played(steps)
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    whole = merged(merged(one, two), three)
    for state in (one, two, three, whole):
        assert whole == merged(whole, state)
        assert merged(state, state) == state


@given(STEPS)
def test_nothing_is_lost_but_by_a_replacement(steps: list[tuple[str, int, object, object]]) -> None:
    """Each task of the newest list is in the merged one, once and under a number of its own."""
    states = played(steps)
    whole = TaskState()
    for state in states:
        whole = merged(whole, state)
    newest = max(state.epoch for state in states)
    keys = {record.key for state in states if state.epoch == newest for record in state.records}
    assert keys == {record.key for record in whole.records}
    assert len(keys) == len({item.id for item in items_of(whole.records)})


def test_two_that_append_at_once_keep_both() -> None:
    """Both gave the number 2: one keeps it, the other is shown as 3 everywhere, whoever hears first."""
    one, two = TaskList(), TaskList()
    one.create(["read"])
    two.restore(one.state())
    one.create(["write"], append=True)
    two.create(["test"], append=True)
    before = one.state(), two.state()
    one.restore(before[1])
    two.restore(before[0])
    assert list(one.items) == list(two.items)
    assert ["read", *sorted(("write", "test"))] == ["read", *sorted(task.text for task in one.items[1:])]
    assert [1, 2, 3] == [task.id for task in one.items]


def test_a_replacement_that_knew_of_a_list_takes_its_place() -> None:
    """Of two that did not know of each other both stay."""
    one, two = TaskList(), TaskList()
    one.create(["a"])
    two.create(["b"])
    one.restore(two.state())
    assert {"a", "b"} == {task.text for task in one.items}
    one.create(["c"])
    two.restore(one.state())
    assert ["c"] == [task.text for task in two.items]


def test_a_request_that_is_repeated_is_one_task() -> None:
    """A retry at another process, which has not heard of it, makes the same records."""
    one, two = TaskList(), TaskList()
    for tasks in (one, two):
        tasks.create(["read", "write"], append=True, request_id="a")
    one.restore(two.state())
    assert [TaskItem(1, "read"), TaskItem(2, "write")] == list(one.items)


def test_of_two_changes_of_one_task_the_later_holds() -> None:
    """And of two that did not know of each other the one that goes further, in whatever order they are heard."""
    base = TaskList()
    base.create(["read"])
    states = []
    for status in (TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS):
        tasks = TaskList()
        tasks.restore(base.state())
        tasks.update(1, status)
        states.append(tasks.state())
    for first, second in permutations(states):
        assert (TaskItem(1, "read", TaskStatus.COMPLETED),) == items_of(merged(first, second).records)
    again = TaskList()
    again.restore(states[0])
    again.update(1, TaskStatus.PENDING)
    assert (TaskItem(1, "read", TaskStatus.PENDING),) == items_of(merged(states[0], again.state()).records)


def test_tasks_made_apart_have_numbers_of_their_own() -> None:
    """So what one process calls task 1 is not another's; an update names them as they are shown."""
    one, two = TaskList(), TaskList()
    one.create(["a"])
    made = two.create(["b", "c"], append=True, apart=True)
    assert made[0].id > 100
    assert made[1].id == made[0].id + 1
    one.restore(two.state())
    one.update(made[1].id, TaskStatus.COMPLETED)
    assert [TaskItem(1, "a"), TaskItem(made[0].id, "b")] == one.unfinished


@pytest.mark.parametrize("known", [False, True])
def test_what_the_earlier_version_stored_is_read(*, known: bool) -> None:
    """Also where it has changed tasks that are known here as records, as in a rolling upgrade: none comes twice."""
    tasks = TaskList()
    if known:
        tasks.create(["read", "write"], append=True, request_id="a")
    left = [TaskItem(1, "read", TaskStatus.COMPLETED), TaskItem(2, "write"), TaskItem(3, "test")]
    tasks.restore(from_earlier(7, left, ["a", "b"], tasks.state()))
    assert left == list(tasks.items)
    assert left == list(tasks.create(["more"], request_id="b"))
    tasks.restore(from_earlier(7, left, ["a", "b"], tasks.state()))
    assert left == list(tasks.items)
