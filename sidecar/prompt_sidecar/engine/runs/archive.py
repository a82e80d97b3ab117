"""Where runs are kept outside the process: two protocols, with nothing behind them by default.

The core hands over what a call has brought once its answer is made, and asks only where this process does not have what
it is asked for. Nothing here decides about a prompt, with one exception: a process that does not know the run, or
not the last prompts of it, takes the revision of its last answer from here, as if the agent had sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from prompt_sidecar.facts.archived import ArchivedRun, Batch, Everything, Original, StoreTotals, TaskState
from prompt_sidecar.facts.figures import RunFigures, StoreFigures
from prompt_sidecar.guard.vault import Value


class ArchiveLack(Enum):
    """Why an id that a process has returned may not be in the archive, though it answers."""

    NOTHING = "nothing"
    """It has all that was handed to it, as far as it knows."""
    NO_WRITES = "no_writes"
    """It refuses writes now, or is away."""
    UNWRITTEN = "unwritten"
    """It refused writes of the run, and the process that had them has not written them since."""


class ArchivePlace(Protocol):
    """One run's place in the archive. A process has one for each of its runs, from the run's first call on.

    Thread-safe. No method raises but those that say so.
    """

    def restored(self, wait: float | None) -> ArchivedRun | None:
        """What another process left of the run; None: nothing, or it is not known by then.

        `wait`: seconds to wait for the archive's answer; None: as long as any read may take.
        """
        ...

    def newest_revision(self, wait: float) -> bytes:
        """The revision of the run's last answer, which is asked for now; empty: there is none, or no reply by then.

        `wait`: seconds to wait for it at most.
        """
        ...

    def ask_tasks(self, *, hidden: bool = False) -> None:
        """Begin to ask for what other processes have made of the run's tasks, and return at once.

        `hidden`: and of its hidden turns.
        """
        ...

    def hidden(self, wait: float) -> bytes | None:
        """The run's hidden turns as the archive has them, if others have changed them since this was last called.

        Empty: it had some, and has none now, or none that can be read. None: nothing has changed, or there is no reply
        by then.

        `wait`: seconds to wait at most for the reply to what was asked last.
        """
        ...

    def tasks(self, wait: float | None) -> tuple[TaskState, bool]:
        """All that is known of the run's tasks, and whether the archive has answered `ask_tasks` by then.

        `wait`: seconds to wait for its answer at most; None: as long as any read may take.
        """
        ...

    def settle_tasks(self) -> bool:
        """Whether the archive has the tasks that were handed over; waits as long as a command may take."""
        ...

    @property
    def looked(self) -> bool:
        """Whether the archive has been read for this run."""
        ...

    def write(self, batch: Batch, everything: Everything) -> None:
        """Take what a call has brought, and return at once; `everything` is read where the archive lacks more."""
        ...

    def settle(self) -> None:
        """Wait until what edits of the run's answers have taken out is kept, if the archive is to be waited for.

        Raises:
            StoreUnavailable: it is not kept in time.
        """
        ...

    def originals(self, stash_ids: Sequence[str]) -> Mapping[str, Original]:
        """Those of the originals that are there; `item` is None in all. Raises StoreUnavailable."""
        ...

    def values(self, mask_ids: Sequence[str]) -> Sequence[Value]:
        """Those of the values behind these masks that are there. Raises StoreUnavailable."""
        ...

    def lend_values(
        self, known: Callable[[str], bool], take: Callable[[Sequence[Value]], None], *, again: bool
    ) -> None:
        """Have values behind masks that other processes found given to `take`, in another thread, and return at once.

        `known` says of a mask's id whether its value is known here. `again`: also where none has come since this was
        last done.
        """
        ...

    def lack(self) -> ArchiveLack:
        """Whether another process may have returned an id that the archive does not have, which is asked."""
        ...

    def items(self, check: Callable[[], None]) -> Sequence[Original]:
        """The facts of all recorded items in the order of the history; `original` is empty. Raises StoreUnavailable.

        `check` is called now and then; what it raises ends the call.
        """
        ...

    def figures(self) -> StoreFigures:
        """How the run stands there, as far as this process knows; nothing is asked."""
        ...

    def renew(self) -> None:
        """The run was used: its time to live begins again."""
        ...

    def end(self) -> None:
        """Forget the run everywhere; what is still to be written of it is not written."""
        ...


class Archive(Protocol):
    """Keeps runs outside the process. Thread-safe. No method raises but those that say so."""

    @property
    def keeps_values(self) -> bool:
        """Whether it keeps values behind masks, too."""
        ...

    def find(self, run_key: bytes, caller_key: bytes) -> ArchivePlace:
        """Begin to look for a run, and return at once.

        `run_key` is its key, from which its place and cipher follow; `caller_key` is that of all its caller's runs.
        """
        ...

    def end_all(self, caller_key: bytes, check: Callable[[], None]) -> int:
        """Forget all runs of a caller everywhere; how many there were.

        `check` is called now and then; what it raises ends the call, and another one goes on. Raises StoreUnavailable.
        """
        ...

    def totals(self) -> StoreTotals:
        """Its figures."""
        ...


@dataclass(slots=True)
class ArchiveProgress:
    """What a run has given to the archive and taken from it. The run's lock guards it."""

    place: ArchivePlace | None = None
    """None: there is no archive, or no call of the run has asked for it."""
    outbox: list[Original] | None = None
    """What the call at hand has stored; None where `place` is."""
    adopted: bool = False
    """Whether the run has taken over what another process left of it."""
    restored: RunFigures | None = None
    """That process's figures of it; times by this process's clock."""
    revision_left: bytes = b""
    """The revision of that process's last answer, until a prompt goes on from it here."""
    loaded: bool = False
    """Whether all that the archive has is in the run's history too."""
    answered: bool = False
    """Whether an answer of this process was handed over."""
    iteration: int = -1
    """Of the last revision that was handed over; -1: none was."""
    asked: bool = False
    """Whether a door has had the archive asked for the prompt that comes next."""
    hidden: bytes | None = None
    """The run's hidden turns, to be handed over with what the next prompt brings; None: they have not changed."""
    vaulted: set[str] = field(default_factory=set)
    """Ids of the masks whose values were handed over; at most as many as the vault has of a run."""
    vault_changes: int = 0
    """How often the run's values had changed then."""
    vault_lost: int = 0
    """How often the run's values had been evicted when others' were last lent."""
