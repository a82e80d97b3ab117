"""A run's tasks, and the calls that change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class TaskStatus(StrEnum):
    """The status of a task."""

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
    """Whether other processes may know other tasks: the shared store could not be asked for their changes, or does not
    have all of these yet."""

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.items)

    def __iter__(self) -> Iterator[TaskItem]:
        """Iterate over the tasks."""
        return iter(self.items)

    def __getitem__(self, index: int) -> TaskItem:
        """Return the task at an index."""
        return self.items[index]


@dataclass(frozen=True, slots=True)
class CreateTasksCall:
    """Tasks to create."""

    caller: str
    run_id: str
    items: Sequence[str]
    append: bool = False
    """False: they replace the present tasks."""
    request_id: str = ""
    statuses: Sequence[TaskStatus] = ()
    """The status of each; empty: all are pending."""


@dataclass(frozen=True, slots=True)
class UpdateTaskCall:
    """A change of a task's status."""

    caller: str
    run_id: str
    id: int
    status: TaskStatus
    request_id: str = ""
