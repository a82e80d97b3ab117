"""A run's tasks as records that processes merge, whatever each of them has received from the others.

Each process changes its own state, and merges the states of others as it receives them. A merge takes the newest
version of each task; if the whole list was replaced, the state that was replaced more often. It is commutative,
associative and idempotent (a state-based CRDT: Shapiro et al., "Conflict-free Replicated Data Types", 2011), so all
processes reach the same tasks in whatever order they receive changes. If two processes replaced the list without
knowing about each other's replacement, both lists stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Final

from prompt_sidecar.facts.archived import TaskRecord, TaskState
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus

REQUESTS: Final = 256
"""Names of changes that are remembered: a retry is sent within seconds, and no agent makes so many changes in that
time."""
KEY_DIGITS: Final = 20
"""Hexadecimal digits of a record's key: 80 bits."""

_RANKS: Final = {status: rank for rank, status in enumerate(TaskStatus)}


def merged(one: TaskState, other: TaskState) -> TaskState:
    """Merge two states."""
    if one == other:
        return one
    newest = max(one.epoch, other.epoch)
    records: dict[str, TaskRecord] = {}
    for state in (one, other):
        for record in state.records if state.epoch == newest else ():
            records[record.key] = max(records.get(record.key, record), record, key=_order)
    requests: dict[str, int] = {}
    for version, name in (*one.requests, *other.requests):
        requests[name] = max(requests.get(name, 0), version)
    return TaskState(
        max(one.version, other.version),
        newest,
        in_order(records.values()),
        tuple(sorted((version, name) for name, version in requests.items())[-REQUESTS:]),
    )


def _order(record: TaskRecord) -> tuple[int, int, int, str]:
    """Return a sort key: the greatest record of a task is kept; of equal versions, the further progress."""
    return record.version, _RANKS[record.status], record.number, record.text


def in_order(records: Iterable[TaskRecord]) -> tuple[TaskRecord, ...]:
    """Return records in the order of a state."""
    return tuple(sorted(records, key=attrgetter("key")))


def numbered(records: Sequence[TaskRecord]) -> dict[int, TaskRecord]:
    """Return the records by their displayed numbers, in order.

    A record keeps its original number. If two processes gave the same number without knowing about each other, the
    first record by key keeps it, and the others are numbered after all.
    """
    shown: dict[int, TaskRecord] = {}
    behind = []
    for record in sorted(records, key=attrgetter("number", "key")):
        if record.number in shown:
            behind.append(record)
        else:
            shown[record.number] = record
    return shown | dict(enumerate(behind, max(shown, default=0) + 1))


def items_of(records: Sequence[TaskRecord]) -> tuple[TaskItem, ...]:
    """Return the tasks as agents see them, by number."""
    return tuple(TaskItem(number, record.text, record.status) for number, record in numbered(records).items())


def key_of(*parts: object) -> str:
    """Return the key of a record that two processes may both make, such as for one request that was sent twice."""
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:KEY_DIGITS]


def from_earlier(version: int, items: Sequence[TaskItem], requests: Sequence[str], known: TaskState) -> TaskState:
    """Convert the state stored by the version before records: tasks by number. `known`: this process's state.

    A task known here under the same number is the same task, so replicas of both versions may share a run during an
    upgrade. Tasks that the earlier version has replaced stay if they are known here.
    """
    here = numbered(known.records)
    records = {}
    for item in items:
        record = here.get(item.id)
        if record is None or record.text != item.text:
            record = TaskRecord(key_of("earlier", item.id, item.text), version, item.id, item.text, item.status)
        elif record.status is not item.status and version > record.version:
            record = record._replace(version=version, status=item.status)
        records[record.key] = record
    return TaskState(version, known.epoch, in_order(records.values()), tuple((0, name) for name in sorted(requests)))
