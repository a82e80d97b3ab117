"""What is kept of a run outside the process, so that another process can continue it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.task_calls import TaskStatus
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.recall.item import HistoryItem


class Original(NamedTuple):
    """An original, and its record in the run's history."""

    stash_id: str
    original: bytes
    content_type: str
    item: HistoryItem | None
    """None for an original that search does not cover, such as an image."""


class TaskRecord(NamedTuple):
    """A task of a run, as all processes know it."""

    key: str
    """The same in all processes, and unique even while they have not exchanged their tasks."""
    version: int
    """The version of the state in which it was last changed; the higher one is newer."""
    number: int
    """The number given by the process that made it; see `prompt_sidecar.engine.tools.task_records.numbered`."""
    text: str
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class TaskState:
    """A run's present tasks, with the names of the changes that were made.

    The states of two processes are merged by `prompt_sidecar.engine.tools.task_records.merged`.
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
    """The iteration of the previous revision, which it may replace even if its own is lower: an agent that goes back in
    its history begins a branch. -1: this process has written none."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call has added to a run."""

    originals: Sequence[Original] = ()
    revision: RevisionState | None = None
    figures: RunFigures | None = None
    """With times in seconds since the epoch."""
    tasks: TaskState | None = None
    edits: bool = False
    """Whether an answer may have to wait for it, as it leaves out something that an earlier one had."""
    hidden: bytes | None = None
    """All hidden turns of the run that its door knows, in a form that doors alone read; None: they are as they were."""
    values: Sequence[Value] = ()
    """Values behind masks, where the archive keeps them."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """The stored state of a run that another process has seen."""

    revision: bytes = b""
    figures: RunFigures | None = None
    """None if they cannot be read, as another version wrote them."""
    tasks: TaskState | None = None
    seen: bool = True
    """Whether a prompt of the run was seen, not only its tasks."""


Everything = Callable[[], Iterator[Original | Value]]
"""Yields all originals of a run that this process still has, and where the archive keeps them the values of masks."""


class StoreCommand(StrEnum):
    """The kinds of commands to the store."""

    READ = "read"
    WRITE = "write"
    END = "end"


class StoreReply(StrEnum):
    """The outcome of a command."""

    DONE = "done"
    OUTDATED = "outdated"
    """A write to a run that was ended meanwhile, or that the store has lost."""
    UNREACHABLE = "unreachable"
    """There is no connection, or it was closed."""
    SLOW = "slow"
    """No answer in time."""
    TLS = "tls"
    """TLS failed, for example because a certificate is not trusted."""
    DENIED = "denied"
    """The user or the password is wrong, or the user lacks permission."""
    FULL = "full"
    """The store has no memory for a write."""
    FAILED = "failed"
    """Any other error, such as that a replica was asked to write."""
    SKIPPED = "skipped"
    """Not sent, as the last commands had no answer."""

    @property
    def is_away(self) -> bool:
        """Whether some of these in a row make the sidecar pause its commands, as the store is unavailable."""
        return self in {StoreReply.UNREACHABLE, StoreReply.SLOW, StoreReply.TLS, StoreReply.DENIED}


class StoreLoss(StrEnum):
    """Why something that should be in the store is not."""

    QUEUE_FULL = "queue_full"
    TOO_OLD = "too_old"
    TOO_LARGE = "too_large"
    ENDED = "ended"
    """The run was ended by another process."""
    UNCERTAIN = "uncertain"
    """The store could not be asked when the run began, and when it could, the run had been ended, or begun again."""
    UNREADABLE = "unreadable"
    """The stored value was not written with this key for this run, or it is damaged."""
    VAULT_FULL = "vault_full"
    """The run has as many values behind masks in the store as it may."""


@dataclass(frozen=True, slots=True)
class StoreTotals:
    """Figures of the store, as this process sees it. Counts since the process began."""

    commands: Mapping[tuple[StoreCommand, StoreReply], int] = field(default_factory=dict)
    lost: Mapping[StoreLoss, int] = field(default_factory=dict)
    """Counts of lost originals and other values."""
    queued_bytes: int = 0
    """Bytes that wait to be written, before compression."""
    queue_limit: int = 0
    lag: float = 0.0
    """Seconds that the oldest waiting write has waited; 0 if nothing waits."""
    reachable: bool = True
    bounds: Mapping[str, int] = field(default_factory=dict)
    """How often a resource limit was reached without an error for a caller, by its name."""
