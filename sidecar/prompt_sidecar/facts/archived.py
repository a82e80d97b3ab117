"""What is kept of a run outside the process, so that another process can go on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.task_calls import TaskStatus
from prompt_sidecar.recall.item import HistoryItem


class Original(NamedTuple):
    """An original, and its record in the run's history."""

    stash_id: str
    original: bytes
    content_type: str
    item: HistoryItem | None
    """None for one that search does not cover, such as an image."""


class TaskRecord(NamedTuple):
    """A task of a run, as all processes know it."""

    key: str
    """Its own in all processes, whatever they have not heard of each other yet."""
    version: int
    """Of the state that it was changed in last; the higher one is newer."""
    number: int
    """Which the process that made it has given it; see `prompt_sidecar.engine.tools.task_records.numbered`."""
    text: str
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class TaskState:
    """A run's tasks as they stand, with the names of the changes that were made.

    What two processes know is merged by `prompt_sidecar.engine.tools.task_records.merged`.
    """

    version: int = 0
    """Grows with each change."""
    epoch: int = 0
    """How often the whole list was replaced."""
    records: tuple[TaskRecord, ...] = ()
    """By key."""
    requests: tuple[tuple[int, str], ...] = ()
    """The version that each change made, and its name; the oldest first."""


@dataclass(frozen=True, slots=True)
class RevisionState:
    """The revision of a run's last answer."""

    iteration: int
    revision: bytes
    before: int = -1
    """The iteration of the one before it, in whose place it may come though its own is lower: an agent that goes back
    in its history begins a branch. -1: this process has written none."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call has brought to a run."""

    originals: Sequence[Original] = ()
    revision: RevisionState | None = None
    figures: RunFigures | None = None
    """With times in seconds since the epoch."""
    tasks: TaskState | None = None
    edits: bool = False
    """Whether the call's answer leaves out something that an earlier one had."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """What was kept of a run that another process has seen."""

    revision: bytes = b""
    figures: RunFigures | None = None
    """None: they cannot be read, as another version wrote them."""
    tasks: TaskState | None = None
    seen: bool = True
    """Whether a prompt of it was seen, not only its tasks."""


Everything = Callable[[], Iterator[Original]]
"""All originals of a run that this process still has."""


class StoreCommand(StrEnum):
    """What the store is asked for."""

    READ = "read"
    WRITE = "write"
    END = "end"


class StoreReply(StrEnum):
    """What comes of a command."""

    DONE = "done"
    OUTDATED = "outdated"
    """A write of a run that was ended meanwhile, or that the store has no more."""
    UNREACHABLE = "unreachable"
    """There is no connection, or it broke off."""
    SLOW = "slow"
    """No answer in time."""
    TLS = "tls"
    """TLS failed, such as for a certificate that is not trusted."""
    DENIED = "denied"
    """The user or the password is wrong, or the user may not do that."""
    FULL = "full"
    """The store has no memory for a write."""
    FAILED = "failed"
    """An answer that says something else, such as that a replica was asked to write."""
    SKIPPED = "skipped"
    """Not asked, as the last commands had no answer."""

    @property
    def is_away(self) -> bool:
        """Whether the store is left alone for a while after some of these in a row, as it can do nothing for us."""
        return self in {StoreReply.UNREACHABLE, StoreReply.SLOW, StoreReply.TLS, StoreReply.DENIED}


class StoreLoss(StrEnum):
    """Why something is not in the store though it should be."""

    QUEUE_FULL = "queue_full"
    TOO_OLD = "too_old"
    TOO_LARGE = "too_large"
    ENDED = "ended"
    """Its run was ended by another process."""
    UNCERTAIN = "uncertain"
    """The store could not be asked when the run began, and it had been ended, or begun again, when it could."""
    UNREADABLE = "unreadable"
    """What the store has was not written with this key for this run, or it is damaged."""


@dataclass(frozen=True, slots=True)
class StoreTotals:
    """Of the store, as this process sees it. Counts since the process began."""

    commands: Mapping[tuple[StoreCommand, StoreReply], int] = field(default_factory=dict)
    lost: Mapping[StoreLoss, int] = field(default_factory=dict)
    """Originals and other values."""
    queued_bytes: int = 0
    """Bytes that wait to be written, before compression."""
    queue_limit: int = 0
    lag: float = 0.0
    """Seconds that the oldest of what waits has waited; 0: nothing waits."""
    reachable: bool = True
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Times that a bound was reached and no caller got an error, by its name."""
