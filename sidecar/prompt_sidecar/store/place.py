"""One run's place in the store, as this process knows it.

Its *epoch* counts how often a run of its name was ended before. It is read when the first call of the run arrives, and
before that call is answered, so that what the run holds is known to be of that epoch. Where the store could not be
asked by then, an epoch that is read later may be that of another life of the run: if it says that there was more than
one, the run is not written, as what was ended must not come back.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Final

from prompt_sidecar.facts.archived import ArchivedRun, Batch, Everything, Original, TaskState
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.store.sealing import Sealer

UNKNOWN: Final = -1


@dataclass(eq=False, slots=True)
class RunPlace:
    """See the file's docstring. The archive's lock guards it."""

    sealer: Sealer
    caller_name: str
    """Where the run is noted as one of its caller's."""
    floor: int = 0
    """The epoch that this process knows the run to have reached, as it has ended the one before."""
    epoch: int = UNKNOWN
    begun: bool = False
    """Whether the store has the run, as far as is known."""
    birth: bytes = b""
    """Which of its births there that is."""
    left: ArchivedRun | None = None
    """What another process had left there when it was looked for."""
    look: Future[None] | None = None
    """Under way, or done."""
    used: bool = False
    """Whether the run was written to before its epoch was known."""
    detached: bool = False
    """Whether it is not written any more."""
    over: bool = False
    """Whether this process has ended it."""
    lacking: bool = False
    """Whether the store lacks something of it that was handed over."""
    everything: Everything | None = None
    """Reads what this process has of it."""
    handed: int = 0
    """Batches handed over."""
    edits: int = 0
    """The last of them that an answer waits for."""
    kept: int = 0
    """The last of them that the store has."""
    renewed: float = 0.0
    """When its time to live last began there."""
    jobs: deque[PendingWrite] = field(default_factory=deque)
    """What waits to be written of it, the oldest first."""
    tasks: TaskState = field(default_factory=TaskState)
    """Its tasks with all changes that are known here: this process's own, and those that it has read of others."""
    tasks_there: TaskState = field(default_factory=TaskState)
    """The tasks that the store has, as far as is known."""
    tasks_digest: bytes = b""
    """Of the value that holds them there; empty: there is none. What it holds is in `tasks`."""
    tasks_asked: Future[None] | None = None
    """The last look for others' changes of tasks: under way, or done."""
    hidden: bytes | None = None
    """Its hidden turns that are to be written, or None if they are written already."""
    hidden_name: bytes = b""
    """What that value is distinguished by from others, once it is in the store."""
    hidden_there: bytes = b""
    """The same of the value that the store has, as far as is known; empty: it has none."""
    hidden_found: bytes | None = None
    """What the store was found to have of them, until it is taken; empty: nothing that can be read."""
    noted: float = -inf
    """When it was last noted as one of its caller's."""
    value_ids: bytes = b""
    """Ids of the masks whose values the store has, as far as is known, one after the other."""
    values_read: int = 0
    """Bytes of the ids whose values were last read, as far as they were not known."""
    unwritten: bool = False
    """Whether the store knows that this process has something of the run that it was too full to take."""
    unwritten_since: float = -inf
    """When it was last told."""

    @property
    def owes_tasks(self) -> bool:
        """Whether the store lacks something of what is known of the tasks."""
        return self.tasks != self.tasks_there


@dataclass(slots=True)
class PendingWrite:
    """What waits to be written of a run: what a call handed over, or the end of a run."""

    place: RunPlace
    born: float
    batch: Batch | None
    """None: the run ends."""
    number: int = 0
    size: int = 0
    name: bytes = field(default_factory=lambda: secrets.token_hex(6).encode())
    """Of the field that holds its items' facts, the same when it is tried again."""
    pieces: Iterator[Sequence[Original | Value]] | None = None
    piece: Sequence[Original | Value] | None = None
    """The one that is being written."""
    at: int = 0
    """Its number."""
    whole: bool = False
    """Whether all of the run is written, not only the batch."""
