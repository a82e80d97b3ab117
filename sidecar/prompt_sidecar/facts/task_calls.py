"""A run's tasks, and the calls that change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a task stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class TaskItem:
    """A task of a run."""

    id: int
    """Its number in the run, from 1."""
    text: str
    status: TaskStatus = TaskStatus.PENDING


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of a run."""

    items: Sequence[TaskItem]
    """By number."""
    not_shared: bool = False
    """Whether other processes may know other tasks: the store that they share could not be asked for their changes, or
    does not have all of these yet."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.items)

    def __iter__(self) -> Iterator[TaskItem]:
        """Each of them."""
        return iter(self.items)

    def __getitem__(self, index: int) -> TaskItem:
        """The one at an index."""
        return self.items[index]


@dataclass(frozen=True, slots=True)
class CreateTasksCall:
    """Tasks to create."""

    caller: str
    run_id: str
    items: Sequence[str]
    append: bool = False
    """False: they take the place of those that are there."""
    request_id: str = ""
    statuses: Sequence[TaskStatus] = ()
    """Where each stands; empty: all are pending."""


@dataclass(frozen=True, slots=True)
class UpdateTaskCall:
    """A task that stands elsewhere now."""

    caller: str
    run_id: str
    id: int
    status: TaskStatus
    request_id: str = ""
