"""The vault: the values behind masks, in memory, as long as their run is known and there is room.

A value is stored before its mask is made, so that no mask is without a value. If a run has no more room, a value is not
stored, and not masked. If all runs together have none, the run that was idle for longest loses all of its values: its
masks stay unchanged, and when its agent sends the history again the values are found and stored again.

Values that another process found in the run may be *lent*: their masks are filled, but they mask nothing, as what is
masked must not depend on when they come. They take only room that nothing else needs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import re2

from prompt_sidecar.guard.masks import mask, mint

VALUE_BYTES: Final = 600
"""What a value takes in addition to its text: the object, its id, two entries of dicts."""
RUN_BOUND: Final = "guard.run_vault_bytes"
TOTAL_BOUND: Final = "guard.vault_bytes"
BARE_CHARACTERS: Final = 8
"""Least length of a value that is masked everywhere; a shorter one is masked only where a rule finds it, as it could be
any word."""
GATE_BYTES: Final = 33_554_432
"""Memory that the expression of a run's values may take; it is built as texts need it."""
OUTSIDE: Final = -2
"""`first` of a value that was found in a task. It is masked in tasks only, as another process that gets the history
alone must mask it the same way; once the history has the value, it is masked there too."""
NEW_VALUES: Final = 32
"""Values that are searched one by one before all are compiled into one expression."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value behind a mask."""

    kind: str
    id: str
    text: str
    rule: str
    """The name of the rule that found it."""
    first: int
    """Index of the sent message in which it was found; -1: before them, in the system prompt; `OUTSIDE`."""

    @property
    def mask(self) -> str:
        """Return its mask."""
        return mask(self.kind, self.id)

    @property
    def bytes(self) -> int:
        """Bytes that it takes in the vault."""
        return 4 * len(self.text) + VALUE_BYTES


@dataclass(slots=True)
class _OfRun:
    by_id: dict[str, Value] = field(default_factory=dict)
    bytes: int = 0
    lost: int = 0
    """How often its values were evicted."""
    changes: int = 0
    lent: dict[str, Value] = field(default_factory=dict)
    """Values that another process found, by id; none of `by_id`."""
    lent_bytes: int = 0
    """Their part of the bytes of all runs; it is no part of `bytes`."""


@dataclass(frozen=True, slots=True)
class VaultTotals:
    """Figures of all runs."""

    values: int
    bytes: int
    evicted: int
    """Values that were evicted to make room for others, since the process began."""
    refused: int
    """Values that were not stored for lack of room, since the process began."""


class Vault:
    """The values of all runs. Thread-safe."""

    def __init__(self, total_bytes: int, run_bytes: int, reached: Callable[[str], None]) -> None:
        """Take the resource limits, in estimated bytes, and what counts that one was reached."""
        self._total_bytes, self._run_bytes = total_bytes, min(run_bytes, total_bytes)
        self._reached = reached
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _OfRun] = OrderedDict()
        self._bytes = self._values = self._evicted = self._refused = self._lent_bytes = 0

    def put(self, run: str, key: bytes, found: Value) -> tuple[Value | None, bool]:
        """Store a value of a run and assign its id.

        Returns:
            The stored value, or None if there is no room; and whether it is new.
        """
        minted = mint(key, found.text)
        with self._lock:
            of_run = self._runs.setdefault(run, _OfRun())
            self._runs.move_to_end(run)
            known = of_run.by_id.get(minted)
            if known is not None and known.text != found.text:
                return None, False
            if known is not None and (known.first != OUTSIDE or found.first == OUTSIDE):
                return known, False
            if known is not None:  # so far only a task has had it
                known = of_run.by_id[minted] = replace(known, first=found.first)
                of_run.changes += 1
                return known, True
            value = Value(found.kind, minted, found.text, found.rule, found.first)
            if of_run.bytes + value.bytes > self._run_bytes:
                self._refused += 1
                self._reached(RUN_BOUND)
                return None, False
            while self._bytes + value.bytes > self._total_bytes:
                if self._lent_bytes:
                    self._return_lent(next(each for each in self._runs.values() if each.lent))
                    continue
                name, oldest = next((name, each) for name, each in self._runs.items() if each.by_id or name == run)
                if name == run:
                    self._refused += 1
                    self._reached(TOTAL_BOUND)
                    return None, False
                self._empty(oldest)
            if (lent := of_run.lent.pop(minted, None)) is not None:
                of_run.lent_bytes -= lent.bytes
                self._lent_bytes -= lent.bytes
                self._bytes -= lent.bytes
                self._values -= 1
            of_run.by_id[minted] = value
            of_run.changes += 1
            of_run.bytes += value.bytes
            self._bytes += value.bytes
            self._values += 1
            return value, True

    def lend(self, run: str, values: Iterable[Value]) -> None:
        """Have masks of values known that another process found; what there is no room for stays unknown."""
        with self._lock:
            of_run = self._runs.setdefault(run, _OfRun())
            for value in values:
                if value.id in of_run.by_id or value.id in of_run.lent:
                    continue
                bound = RUN_BOUND if of_run.lent_bytes + value.bytes > self._run_bytes else TOTAL_BOUND
                if bound == RUN_BOUND or self._bytes + value.bytes > self._total_bytes:
                    self._refused += 1
                    self._reached(bound)
                    continue
                of_run.lent[value.id] = value
                of_run.lent_bytes += value.bytes
                self._lent_bytes += value.bytes
                self._bytes += value.bytes
                self._values += 1

    def get(self, run: str, mask_id: str, other_keys: Sequence[bytes] = ()) -> Value | None:
        """Return the value of a mask, also of a mask made by another of the run's keys; None if it is not known."""
        with self._lock:
            of_run = self._runs.get(run)
            if of_run is None or mask_id in of_run.by_id:
                return None if of_run is None else of_run.by_id[mask_id]
            if mask_id in of_run.lent:
                return of_run.lent[mask_id]
            values = of_run.by_id.values() if other_keys else ()
            return next((each for each in values for key in other_keys if mint(key, each.text) == mask_id), None)

    def is_lent(self, run: str, mask_id: str) -> bool:
        """Whether the value of a mask is lent, and was not found here."""
        with self._lock:
            of_run = self._runs.get(run)
            return of_run is not None and mask_id in of_run.lent

    def has(self, run: str, mask_id: str) -> bool:
        """Whether the value of a mask is known, found here or lent."""
        with self._lock:
            of_run = self._runs.get(run)
            return of_run is not None and (mask_id in of_run.by_id or mask_id in of_run.lent)

    def values(self, run: str) -> Sequence[Value]:
        """Return all values of a run, in the order in which they were found."""
        with self._lock:
            of_run = self._runs.get(run)
            return () if of_run is None else tuple(of_run.by_id.values())

    def has_values(self, run: str) -> bool:
        """Whether the run has any values."""
        with self._lock:
            of_run = self._runs.get(run)
            return of_run is not None and bool(of_run.by_id or of_run.lent)

    def lost(self, run: str) -> int:
        """Return how often the run's values were evicted."""
        with self._lock:
            of_run = self._runs.get(run)
            return 0 if of_run is None else of_run.lost

    def changes(self, run: str) -> int:
        """Return how often the run's values have changed."""
        with self._lock:
            of_run = self._runs.get(run)
            return 0 if of_run is None else of_run.changes

    def take_back(self, run: str, values: Iterable[Value]) -> None:
        """Remove the values of a prompt that was not taken."""
        with self._lock:
            of_run = self._runs.get(run)
            for value in values if of_run is not None else ():
                if of_run is not None and of_run.by_id.pop(value.id, None) is not None:
                    of_run.changes += 1
                    of_run.bytes -= value.bytes
                    self._bytes -= value.bytes
                    self._values -= 1

    def forget(self, run: str) -> None:
        """Forget a run that has ended."""
        with self._lock:
            of_run = self._runs.pop(run, None)
            if of_run is not None:
                self._bytes -= of_run.bytes + of_run.lent_bytes
                self._lent_bytes -= of_run.lent_bytes
                self._values -= len(of_run.by_id) + len(of_run.lent)

    def totals(self) -> VaultTotals:
        """Return the vault's figures."""
        with self._lock:
            return VaultTotals(self._values, self._bytes, self._evicted, self._refused)

    def _return_lent(self, of_run: _OfRun) -> None:
        self._values -= len(of_run.lent)
        self._bytes -= of_run.lent_bytes
        self._lent_bytes -= of_run.lent_bytes
        of_run.lent, of_run.lent_bytes = {}, 0

    def _empty(self, of_run: _OfRun) -> None:
        self._reached(TOTAL_BOUND)
        self._evicted += len(of_run.by_id)
        self._values -= len(of_run.by_id)
        self._bytes -= of_run.bytes
        of_run.by_id, of_run.bytes, of_run.lost, of_run.changes = {}, 0, of_run.lost + 1, of_run.changes + 1


class KnownValues:
    """Finds known values in texts, whether or not a rule finds them there. Values can be added; not thread-safe.

    All but the newest are one expression, so that a text without any takes one pass.
    """

    def __init__(self, values: Iterable[Value], *, of_tasks: bool = False) -> None:
        """Take the values of a run: those of its history, or those that only tasks hold."""
        self._of_tasks = of_tasks
        self._values = {value.text: value for value in values if self._is_for_this(value)}
        self._new: list[Value] = []
        self._holds = _gate(self._values)

    def add(self, value: Value) -> None:
        """Add a value."""
        if self._is_for_this(value) and value.text not in self._values:
            self._values[value.text] = value
            self._new.append(value)
            if len(self._new) > max(NEW_VALUES, len(self._values) // 2):
                self._holds, self._new = _gate(self._values), []

    def find(self, text: str) -> list[tuple[int, int, Value]]:
        """Return start, end and value of each occurrence in a text; they may overlap."""
        found: list[tuple[int, int, Value]] = []
        for value in self._values.values() if self._holds(text) else self._new:
            at = text.find(value.text)
            while at >= 0:
                found.append((at, at + len(value.text), value))
                at = text.find(value.text, at + 1)
        return found

    def _is_for_this(self, value: Value) -> bool:
        return len(value.text) >= BARE_CHARACTERS and (value.first == OUTSIDE) is self._of_tasks


def _gate(values: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that quickly checks whether a text may hold any of the values."""
    literals = [re2.escape(each.encode()) for each in values]
    if not literals:
        return lambda _: False
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = GATE_BYTES
    try:
        search = re2.compile(b"|".join(literals), options).search
    except re2.error:  # too many for one expression: each is searched for
        return lambda _: True
    finally:
        re2.purge()
    return lambda text: search(text.encode(errors="replace")) is not None
