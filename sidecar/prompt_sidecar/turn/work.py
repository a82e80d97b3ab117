"""What one call brings to a run's memory, and what the memory makes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.trim_calls import Annotation, News
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.trim.own_text import Room, Told
from prompt_sidecar.trim.repeated_calls import Repetition
from prompt_sidecar.trim.revision import Revision
from prompt_sidecar.trim.stages import Inputs
from prompt_sidecar.turn.frame import Framed
from prompt_sidecar.turn.received import Read

Count = Callable[[str], int]


def _never() -> None:
    """Nobody stops the call."""


class Store(Protocol):
    """Where a run's originals go: the stash, and the history that is searched."""

    def record(self, items: Sequence[tuple[HistoryItem, bytes]]) -> None:
        """Keep items that are new, before any stage touches them. Their absence later is no fault: a budget may evict.

        `items` and their originals are not changed afterwards.
        """
        ...

    def put(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original from which something is taken now; it must be there when this returns."""
        ...

    def again(self, stash_id: str, original: bytes, content_type: str) -> None:
        """Store an original that had expired and has come again."""
        ...

    def dead(self) -> Collection[str]:
        """Ids that can no longer be retrieved."""
        ...

    def missing(self) -> Sequence[str]:
        """Ids that have expired and were not stored again."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """Which model calls of a history had the prompts that the sidecar returned; the agent may have sent others."""

    iterations: int | None = None
    """So many at the start, as the agent says; None: it does not say."""
    revision: Revision | None = None
    """Where the agent does not say: all up to this one, the last that it got; None: those that this process
    returned."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call brings."""

    format: Format
    split: Split
    reads: list[Read]
    inputs: Inputs
    room: Room
    pinned: frozenset[int]
    annotations: Mapping[int, Annotation]
    revision: Revision | None
    count_many: Callable[[Sequence[str]], Sequence[int]]
    told: Told
    served: Served | None = None
    """None: nothing is known, and all are taken to be."""
    check: Callable[[], None] = field(default=_never)
    """Called now and then while the prompt is taken; what it raises ends the call, and what is decided so far stays."""
    since: int = 0
    """Iteration of the run's last answer, where the memory may have been given up since: what was decided up to there
    is no news."""


@dataclass(slots=True)
class Result:
    """What one call made of it. Tokens."""

    framed: Framed
    own_tokens: int
    sent_tokens: int
    after: int
    first_changed: int
    kept: int
    opaque: int = 0
    """Of `after`, tokens of encrypted text as they were counted."""
    size: HistorySize | None = None
    """In raw tokens."""
    repetitions: Sequence[Repetition] = ()
    batch_point: bool = False
    compacted: bool = False
    news: News = field(default_factory=News)
    revision_applied: bool | None = None
    """None: none was sent, or this process knew the run."""
