"""The data of the stash: an original as stored, one run's originals, and their figures.

Lock and clock are in `prompt_sidecar.recall.stash`, as is the theory of expiry.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import zstandard

from prompt_sidecar.recall.outcome import Outcome

COMPRESS_FROM: Final = 1_024
"""Bytes from which an original is compressed. Measured with zstd level 1 on recorded runs: 2.0x smaller at 0.5-1 KB and
no gain against the entry's own cost, 2.4x at 1-2 KB (11 us in, 8 us out), 4.5x at 8-16 KB (37 us in, 19 us out)."""


class Cause(StrEnum):
    """Why an original was lost."""

    EXPIRED = "expired"
    RUN_BUDGET = "run_budget"
    TOTAL_BUDGET = "total_budget"


@dataclass(frozen=True, slots=True)
class StoredOriginal:
    """An original, byte for byte, and its media type."""

    original: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class StashFigures:
    """Figures of one run's part of the stash. Sizes in bytes; counts since the run began."""

    entries: int
    held_bytes: int
    """Bytes as held: after compression."""
    original_bytes: int
    lost: Mapping[Cause, int]
    retrievals: Mapping[Outcome, int]

    @property
    def expired(self) -> int:
        """Originals whose time to live ended."""
        return self.lost[Cause.EXPIRED]

    @property
    def evicted(self) -> int:
        """Originals that a budget evicted."""
        return self.lost[Cause.RUN_BUDGET] + self.lost[Cause.TOTAL_BUDGET]


@dataclass(frozen=True, slots=True)
class StashTotals:
    """Figures of the whole stash; counts since the process began, including forgotten runs."""

    runs: int
    entries: int
    held_bytes: int
    original_bytes: int
    waiting_bytes: int
    """Raw bytes that wait for compression; part of `held_bytes`."""
    lost: Mapping[Cause, int]
    retrievals: Mapping[Outcome, int]


class StashedOriginal:
    """One original as stored.

    `data` is cleared when the entry is removed, so that no stale reference keeps the bytes.
    """

    __slots__ = ("content_type", "data", "run", "size", "stash_id", "used")

    def __init__(
        self, run: RunEntries, stash_id: str, data: bytes, *, size: int, content_type: str, used: float
    ) -> None:
        self.run = run
        self.stash_id = stash_id
        self.data = data
        """Compressed if and only if it is shorter than `size`."""
        self.size = size
        self.content_type = content_type
        self.used = used


class RunEntries:
    """One run's entries in the order of their last use, and tombstones of lost ones."""

    __slots__ = (
        "dead_line", "entries", "evicted", "expired", "forgotten", "held", "key", "lost", "original", "owner",
        "received", "retrievals", "timed",
    )  # fmt: skip

    def __init__(self, key: str) -> None:
        self.key = key
        self.owner = ""
        self.entries: OrderedDict[str, StashedOriginal] = OrderedDict()
        self.expired: OrderedDict[str, None] = OrderedDict()
        self.evicted: OrderedDict[str, None] = OrderedDict()
        self.received = -math.inf
        self.dead_line = -math.inf
        self.held = 0
        self.original = 0
        self.timed = False
        """Whether `Deadlines` has an entry for it."""
        self.forgotten = False
        self.lost = dict.fromkeys(Cause, 0)
        self.retrievals = dict.fromkeys(Outcome, 0)

    def dead_before(self, horizon: float) -> float:
        """Return the last use up to which entries are dead, if entries not renewed after `horizon` are."""
        return horizon if self.received <= horizon else self.dead_line

    def oldest(self) -> StashedOriginal:
        """Return the least recently used entry: the first to expire and to be evicted."""
        return next(iter(self.entries.values()))

    def without(self, stash_id: str) -> Outcome:
        """Return why an id has no entry here."""
        if stash_id in self.expired:
            return Outcome.EXPIRED
        return Outcome.EVICTED if stash_id in self.evicted else Outcome.NOT_FOUND

    def figures(self) -> StashFigures:
        """Return current figures of the run."""
        return StashFigures(
            entries=len(self.entries),
            held_bytes=self.held,
            original_bytes=self.original,
            lost=dict(self.lost),
            retrievals=dict(self.retrievals),
        )


def squeeze(raw: bytes) -> bytes:
    """Return the bytes compressed with Zstandard level 1 if that saves at least an eighth; else the raw bytes."""
    # A compressor may not be shared between threads; one costs 5 us.
    packed = zstandard.ZstdCompressor(level=1).compress(raw)
    if len(packed) > len(raw) - len(raw) // 8:
        return raw
    # The compressor's buffer still has the size of the uncompressed bytes, so it is copied.
    return bytes(memoryview(packed))


def unsqueeze(data: bytes, size: int) -> bytes:
    """Return the original of `size` bytes from the result of `squeeze`. Never decompresses more than that."""
    if len(data) == size:
        return data
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
