"""What the process holds and what happened in it, as one set of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from prompt_sidecar.facts.archived import StoreTotals
from prompt_sidecar.guard.vault import VaultTotals
from prompt_sidecar.recall.holding import StashTotals


class Event(StrEnum):
    """What happens to runs and their tasks, apart from what answers report."""

    RUN_STARTED = "run_started"
    RUN_ENDED = "run_ended"
    """By its agent."""
    RUN_IDLE = "run_idle"
    """Forgotten after twice the time to live."""
    RUN_TOO_MANY = "run_too_many"
    """Forgotten because there were too many."""
    TASK_CREATED = "task_created"
    TASK_COMPLETED = "task_completed"
    TASK_UNFINISHED = "task_unfinished"
    """When its agent ended its run."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all runs. Bytes; counts since the process began."""

    stash: StashTotals
    stash_limit: int
    runs: int
    memory_bytes: int
    """Estimated, of what runs keep in addition to the stash."""
    memory_limit: int
    vault: VaultTotals
    history_bytes: int
    """Of the originals that histories know, before compression."""
    index_bytes: int
    """Estimated."""
    index_waiting: int
    """Of originals that wait to be indexed."""
    events: Mapping[Event, int]
    bounds: Mapping[str, int]
    """Times that a bound was reached and no caller got an error, by its name; one never reached is missing."""
    draft_bytes: int = 0
    """Of what calls had read of prompts before they had to end."""
    calibration_bytes: int = 0
    """Of calibration factors, estimated."""
    observing: bool = False
    """Whether the sidecar only observes."""
    store: StoreTotals | None = None
    """None: there is no shared store."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Of the whole process. Bytes; 0 where it is not known."""

    resident: int
    """In memory now."""
    baseline: int
    """In memory when it was ready, before any run."""
    limit: int
    """What it may take: the configured, else the container's or the process's own limit."""
    free: int = 0
    """Of blocks that the C library keeps free, at most: pages that it has returned are among them."""


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """Of the control group that the process is in."""

    limit: float
    """Processor cores that it may use; 0: there is no limit."""
    throttled: float
    """Seconds for which it was stopped, as it had used them up."""
