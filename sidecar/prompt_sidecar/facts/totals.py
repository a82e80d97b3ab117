"""What the process holds and counts of its events, as one set of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from prompt_sidecar.facts.archived import StoreTotals
from prompt_sidecar.guard.vault import VaultTotals
from prompt_sidecar.recall.holding import StashTotals


class Event(StrEnum):
    """Events of runs and their tasks, other than those that answers report."""

    RUN_STARTED = "run_started"
    RUN_ENDED = "run_ended"
    """A run was ended by its agent."""
    RUN_IDLE = "run_idle"
    """A run was forgotten after twice the time to live."""
    RUN_TOO_MANY = "run_too_many"
    """A run was forgotten because there were too many."""
    TASK_CREATED = "task_created"
    TASK_COMPLETED = "task_completed"
    TASK_UNFINISHED = "task_unfinished"
    """A task was unfinished when the agent ended its run."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of all runs. Bytes; counts since the process began."""

    stash: StashTotals
    stash_limit: int
    runs: int
    memory_bytes: int
    """What runs keep in addition to the stash, estimated."""
    memory_limit: int
    vault: VaultTotals
    history_bytes: int
    """Size of the originals in histories, before compression."""
    index_bytes: int
    """Estimated."""
    index_waiting: int
    """Size of originals that wait to be indexed."""
    events: Mapping[Event, int]
    bounds: Mapping[str, int]
    """How often a limit was reached without an error for a caller, by its name; a limit never reached is missing."""
    draft_bytes: int = 0
    """Drafts: the parsed parts of interrupted calls' prompts."""
    calibration_bytes: int = 0
    """Calibration factors, estimated."""
    observing: bool = False
    """Whether the sidecar only observes."""
    store: StoreTotals | None = None
    """None if there is no shared store."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of the whole process. Bytes; 0 if unknown."""

    resident: int
    """In memory now."""
    baseline: int
    """In memory when it was ready, before any run."""
    limit: int
    """The most it may take: the configured limit, else the container's or the process's own."""
    free: int = 0
    """At most, blocks that the C library keeps free, which may include pages already returned to the system."""


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """Processor time of the process's control group."""

    limit: float
    """Processor cores that it may use; 0 if there is no limit."""
    throttled: float
    """Seconds for which it was throttled, after using its share."""
