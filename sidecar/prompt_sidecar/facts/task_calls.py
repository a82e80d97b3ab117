"""A run's tasks, and the calls that change them."""

from __future__ import annotations

from collections.abc import Sequence
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
