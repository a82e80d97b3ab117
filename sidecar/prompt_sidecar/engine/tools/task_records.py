"""A run's tasks as records that processes merge, whatever each of them has heard of the others.

Each process changes its own state, and takes in the states of others as they come. A merge takes of each task the
newest version; where the whole list was replaced, the state that was replaced more often. It is commutative,
associative and idempotent (a state-based CRDT: Shapiro et al., "Conflict-free Replicated Data Types", 2011), so all
processes come to the same tasks in whatever order they hear of changes. Of two replacements of which neither
process had heard of the other's, both lists stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Final

from prompt_sidecar.facts.archived import TaskRecord, TaskState
from prompt_sidecar.facts.task_calls import TaskItem, TaskStatus

REQUESTS: Final = 256
"""Names of changes that are remembered: a retry comes within seconds, and no agent makes so many changes in them."""
KEY_DIGITS: Final = 20
"""Hexadecimal digits of a record's key: 80 bits."""

_RANKS: Final = {status: rank for rank, status in enumerate(TaskStatus)}


def merged(one: TaskState, other: TaskState) -> TaskState:
    """What is known where both states are."""
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
    """Which of two records of a task holds; of two changes of the same version the one that goes further."""
    return record.version, _RANKS[record.status], record.number, record.text


def in_order(records: Iterable[TaskRecord]) -> tuple[TaskRecord, ...]:
    """Records as a state has them."""
    return tuple(sorted(records, key=attrgetter("key")))


def numbered(records: Sequence[TaskRecord]) -> dict[int, TaskRecord]:
    """The records by the number that each is shown under, in that order.

    A record keeps the number that it was made with. Where two processes gave the same one without having heard of each
    other, it is the first's, by key, and the others come behind all.
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
    """The tasks as agents see them, by number."""
    return tuple(TaskItem(number, record.text, record.status) for number, record in numbered(records).items())


def key_of(*parts: object) -> str:
    """The key of a record that two processes may both make, such as of one request that came twice."""
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:KEY_DIGITS]


def from_earlier(version: int, items: Sequence[TaskItem], requests: Sequence[str], known: TaskState) -> TaskState:
    """A state of what a version before these records has stored: tasks by number. `known`: what is known here.

    A task that is known here under that number is that one; so replicas of both versions may share a run for the time
    of an upgrade. What the earlier one has replaced stays where it is known here.
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
