"""Metrics that are read from the core's totals at each collection."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from prompt_sidecar.facts.archived import StoreTotals
from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.facts.totals import Event, ProcessCpu, ProcessMemory, Totals
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import Metric
from prompt_sidecar.telemetry.tallies import Values

Series = Mapping[Values, float]

_FORGOTTEN = {"ended": Event.RUN_ENDED, "idle": Event.RUN_IDLE, "too_many": Event.RUN_TOO_MANY}
_TASKS = {"created": Event.TASK_CREATED, "completed": Event.TASK_COMPLETED}


def figures(totals: Totals) -> dict[str, Series]:
    """Return the series of the core's totals, by the metric's name."""
    stash, events, store = totals.stash, totals.events, totals.store or StoreTotals()
    rows: list[tuple[Metric, Series]] = [
        (catalog.STASH_ENTRIES, {(): stash.entries}),
        (catalog.STASH_SIZE, {("held",): stash.held_bytes, ("original",): stash.original_bytes}),
        (catalog.STASH_LIMIT, {(): totals.stash_limit}),
        (catalog.STASH_LOSSES, {(cause.value,): lost for cause, lost in stash.lost.items()}),
        (catalog.VAULT_VALUES, {(): totals.vault.values}),
        (catalog.VAULT_SIZE, {(): totals.vault.bytes}),
        (catalog.VAULT_LOSSES, {("evicted",): totals.vault.evicted, ("refused",): totals.vault.refused}),
        (catalog.RUNS_ACTIVE, {(): totals.runs}),
        (catalog.OBSERVING, {(): int(totals.observing)}),
        (catalog.RUNS_STARTED, {(): events.get(Event.RUN_STARTED, 0)}),
        (catalog.RUNS_FORGOTTEN, {(cause,): events.get(event, 0) for cause, event in _FORGOTTEN.items()}),
        (catalog.TASKS, {(word,): events.get(event, 0) for word, event in _TASKS.items()}),
        (catalog.UNFINISHED_TASKS, {(): events.get(Event.TASK_UNFINISHED, 0)}),
        (catalog.MEMORY_SIZE, {(): totals.memory_bytes}),
        (catalog.MEMORY_LIMIT, {(): totals.memory_limit}),
        (catalog.BUFFERS_SIZE, {("drafts",): totals.draft_bytes, ("calibration",): totals.calibration_bytes}),
        (catalog.HISTORY_SIZE, {(): totals.history_bytes}),
        (catalog.INDEX_SIZE, {(): totals.index_bytes}),
        (catalog.INDEX_WAITING, {(): totals.index_waiting}),
        (
            catalog.STORE_COMMANDS,
            {(command.value, reply.value): times for (command, reply), times in store.commands.items()},
        ),
        (catalog.STORE_LOSSES, {(loss.value,): times for loss, times in store.lost.items()}),
        (catalog.STORE_QUEUE, {("waiting",): store.queued_bytes, ("limit",): store.queue_limit}),
        (catalog.STORE_LAG, {(): store.lag}),
        (catalog.STORE_REACHABLE, {(): int(store.reachable)}),
        (catalog.BOUND_HITS, {(name,): times for name, times in totals.bounds.items()}),
    ]
    return {metric.name: series for metric, series in rows}


def process(memory: ProcessMemory) -> Series:
    """Return the memory of the process."""
    return {
        ("resident",): memory.resident,
        ("baseline",): memory.baseline,
        ("limit",): memory.limit,
        ("free",): memory.free,
    }


def held(connections: HeldConnections) -> Series:
    """Return the connections that wait for the HTTP door."""
    return {
        ("waiting",): connections.waiting,
        ("at_start",): connections.at_start,
        ("limit",): connections.limit,
    }


def processor(cpu: ProcessCpu) -> dict[str, Series]:
    """Return the processor time that the process may use, and was denied, by the metric's name."""
    return {catalog.CPU_LIMIT.name: {(): cpu.limit}, catalog.CPU_THROTTLED.name: {(): cpu.throttled}}


def build_info() -> Series:
    """Return the versions of this package and of Python."""
    return {(version(), platform.python_version()): 1}


def version() -> str:
    """Return the installed version of this package."""
    try:
        return metadata.version("prompt-sidecar")
    except metadata.PackageNotFoundError:
        return "unknown"
