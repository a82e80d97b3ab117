"""Drafts: the parsed part of interrupted calls' prompts, kept for their retries as far as there is room."""

from __future__ import annotations

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.steps.received import Draft
from prompt_sidecar.recall.counts import EventCounts

DRAFT_BYTES: Final = 67_108_864
"""Bytes that all drafts may keep, except the newest, which stays however large: at most 64 MiB of body and its parsed
messages. A draft is removed once its call is tried again."""
BOUND: Final = "run.drafts"


class Drafts:
    """The runs that have a draft. Thread-safe."""

    def __init__(self, bounds: EventCounts[str]) -> None:
        """`bounds` counts the resource limits that were reached."""
        self._bounds = bounds
        self._lock = Lock()
        self._kept: WeakKeyDictionary[Run, int] = WeakKeyDictionary()
        """Runs that were given a draft, oldest first, and the bytes of it. The references are weak: a run that has
        ended goes, and its draft with it."""

    @property
    def bytes(self) -> int:
        """Bytes of all drafts."""
        with self._lock:
            return sum(size for run, size in self._kept.items() if run.draft is not None)

    def keep(self, run: Run, draft: Draft) -> None:
        """Keep a draft of a run, under the run's lock, in place of the oldest ones if there is no room."""
        with self._lock:
            self._kept.pop(run, None)
            self._kept[run] = draft.bytes
            run.draft = draft
            for other in [other for other in self._kept if other.draft is None]:
                del self._kept[other]
            while len(self._kept) > 1 and sum(self._kept.values()) > DRAFT_BYTES:
                oldest = next(iter(self._kept))
                del self._kept[oldest]
                oldest.draft = None
                self._bounds.add(BOUND)
