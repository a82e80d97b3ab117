"""A run's task list: what the model plans to do, and its progress.

A plan kept outside the conversation survives every trim, and gives a completion check something concrete. A change is
made completely or not at all. A change that may be retried has a request id: a retry changes nothing, whatever it
contains. Processes that share a store merge what they know (`task_records.py`). Task texts are data that a model wrote,
perhaps after reading a hostile page: they are shown as JSON strings with invisible characters escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from secrets import randbelow, token_hex
from typing import Final

from prompt_sidecar.engine.tools.task_records import (
    KEY_DIGITS,
    REQUESTS,
    in_order,
    items_of,
    key_of,
    merged,
    numbered,
)
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.archived import TaskRecord, TaskState
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus
from prompt_sidecar.facts.totals import Event
from prompt_sidecar.recall.counts import EventCounts

MAX_TASKS: Final = 50
"""Tasks of a run: all of them are in every task tool's answer, and a longer list is not a useful plan."""
MAX_TEXT: Final = 200
"""Characters of a task, without white space around it: two lines, about 50 tokens."""
MAX_UNSEEN: Final = 40
"""Invisible characters of a task, such as line breaks and joiners: each is escaped where the task is shown, and takes
six times its space."""
APART: Final = 10_000
"""Number of hundreds from which a process draws the first number of its tasks while it cannot know those of others: two
processes draw the same one once in so many times, and then the merge renumbers one of the tasks."""

_RANKS: Final = {TaskStatus.IN_PROGRESS: 0, TaskStatus.PENDING: 1}
"""Which unfinished tasks are named first: those in progress."""
_UNSEEN: Final = re.compile(r"[^\x20-\x7e]")


_TASK_BYTES: Final = 500
_REQUEST_BYTES: Final = 275


class TaskList:
    """The tasks of one run. Not thread-safe: a run is used under its lock."""

    def __init__(self, events: EventCounts[Event] | None = None) -> None:
        """`events` counts the changes of all runs."""
        self._events = events if events is not None else EventCounts()
        self._state = TaskState()
        self._items: tuple[TaskItem, ...] = ()

    @property
    def items(self) -> Sequence[TaskItem]:
        """All tasks, by number."""
        return self._items

    @property
    def kept_bytes(self) -> int:
        """Bytes of the tasks and the names of changes, estimated."""
        return _TASK_BYTES * len(self._items) + _REQUEST_BYTES * len(self._state.requests)

    @property
    def unfinished(self) -> Sequence[TaskItem]:
        """Tasks not completed, by number."""
        return [task for task in self._items if task.status is not TaskStatus.COMPLETED]

    def state(self) -> TaskState:
        """Return the tasks for another process."""
        return self._state

    def restore(self, state: TaskState) -> None:
        """Merge the state of another process. Counts nothing."""
        known = merged(self._state, state)
        if known != self._state:
            self._state, self._items = known, items_of(known.records)

    def create(
        self,
        items: Sequence[str],
        append: bool = False,
        request_id: str = "",
        statuses: Sequence[TaskStatus] = (),
        *,
        mask: Callable[[str, str], str] = lambda text, _: text,
        apart: bool = False,
    ) -> Sequence[TaskItem]:
        """Replace the tasks, or append to them, and return all.

        Args:
            items: their texts; white space around them is dropped. None without `append` removes all tasks.
            append: add them after the present tasks; numbers continue. Otherwise numbers start at 1.
            request_id: names the change; an earlier change of the same name is not made again. Empty: it cannot be
                retried.
            statuses: the status of each task, if known; empty: all are pending.
            mask: returns the text to keep, from a text and its field; what it raises leaves the tasks unchanged.
            apart: whether other processes may have made tasks that are not known here: the new numbers then begin far
                away from theirs.

        Raises:
            InvalidRequest: a text is empty or too long, or there would be too many; nothing has changed.
        """
        if self._made(request_id):
            return self._items
        kept = self._state.records if append else ()
        if len(kept) + len(items) > MAX_TASKS:
            there = f" and the run has {len(kept)}" if kept else ""
            raise InvalidRequest(
                f"items has {len(items):,} tasks{there}; accepted: {MAX_TASKS} in all for a run",
                field="items",
                bound="tasks.count",
            )
        fields = [f"items[{index}]" for index in range(len(items))]
        checked = [_checked(text, field) for text, field in zip(items, fields, strict=True)]
        texts = [mask(text, field) for text, field in zip(checked, fields, strict=True)]
        states = list(statuses) or [TaskStatus.PENDING] * len(texts)
        first = max(numbered(kept), default=0) + 1
        if apart:
            first += 100 * (1 + randbelow(APART))
        added = [
            TaskRecord(
                key_of(request_id, index, text) if request_id else token_hex(KEY_DIGITS // 2),
                self._state.version + 1,
                first + index,
                text,
                status,
            )
            for index, (text, status) in enumerate(zip(texts, states, strict=True))
        ]
        self._change((*kept, *added), request_id, replaces=not append)
        self._events.add(Event.TASK_CREATED, len(texts))
        self._events.add(Event.TASK_COMPLETED, states.count(TaskStatus.COMPLETED))
        return self._items

    def update(self, id: int, status: TaskStatus, request_id: str = "") -> Sequence[TaskItem]:
        """Set a task's status, and return all tasks. Any change of status is allowed.

        Raises:
            InvalidRequest: there is no task of that number; nothing has changed.
        """
        if self._made(request_id):
            return self._items
        shown = numbered(self._state.records)
        if id not in shown:
            raise InvalidRequest(f"id is {id}; accepted: {_numbers(shown)}", field="id")
        task = shown[id]
        if status is TaskStatus.COMPLETED and task.status is not status:
            self._events.add(Event.TASK_COMPLETED)
        changed = task._replace(version=self._state.version + 1, status=status)
        self._change(
            (changed if each.key == task.key else each for each in self._state.records), request_id, replaces=False
        )
        return self._items

    def _made(self, request_id: str) -> bool:
        return bool(request_id) and any(name == request_id for _, name in self._state.requests)

    def _change(self, records: Iterable[TaskRecord], request_id: str, *, replaces: bool) -> None:
        state, version = self._state, self._state.version + 1
        by_key = {record.key: record for record in records}
        requests = (*state.requests, (version, request_id))[-REQUESTS:] if request_id else state.requests
        self._state = TaskState(
            version, state.epoch + (replaces and bool(state.records)), in_order(by_key.values()), requests
        )
        self._items = items_of(self._state.records)


def _numbers(shown: Collection[int]) -> str:
    if not shown:
        return "none, as the run has no tasks yet"
    if len(shown) == max(shown):
        return f"1 to {len(shown)}"
    return ", ".join(map(str, shown))


def lines(tasks: Collection[TaskItem]) -> str:
    """Return a line for each task, for the answers of task tools: number, status, text as a JSON string."""
    return "\n".join(_line(task) for task in tasks)


def open_lines(tasks: Collection[TaskItem], tokens: int, count: Callable[[str], int]) -> str:
    """Return the unfinished tasks for the note, those in progress first, and how many more there are.

    Takes at most `tokens` by `count`: shows as many as fit, at least their number; empty if there are none, or no room
    even for that.
    """
    waiting = sorted((task for task in tasks if task.status in _RANKS), key=lambda task: (_RANKS[task.status], task.id))
    if not waiting:
        return ""
    header = f"{len(waiting)} open task{'' if len(waiting) == 1 else 's'}"
    shown: list[str] = []
    text = f"{header}."
    if count(text) > tokens:
        return ""
    for task in waiting:
        shown.append(_line(task))
        rest = len(waiting) - len(shown)
        tried = "\n".join([f"{header}:", *shown, *([f"and {rest} more"] if rest else [])])
        if count(tried) > tokens:
            break
        text = tried
    return text


def _checked(text: str, field: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= MAX_TEXT:
        raise InvalidRequest(
            f"{field} has {len(text):,} characters without white space around them; accepted: 1 to {MAX_TEXT}",
            field=field,
            bound="tasks.characters" if text else "",
        )
    if text.isprintable():
        return text
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"{field} has a lone surrogate; accepted: Unicode text", field=field)
    unseen = sum(not character.isprintable() for character in text)
    if unseen > MAX_UNSEEN:
        raise InvalidRequest(
            f"{field} has {unseen} characters that cannot be printed; accepted: {MAX_UNSEEN}",
            field=field,
            bound="tasks.characters",
        )
    return text


def _line(task: TaskItem) -> str:
    return f"{task.id} [{task.status}] {_shown(task.text)}"


def _shown(text: str) -> str:
    """Return a text as a JSON string whose letters stay readable; invisible characters are escaped."""
    return _UNSEEN.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return character if character.isprintable() else json.dumps(character)[1:-1].replace("\x7f", "\\u007f")
