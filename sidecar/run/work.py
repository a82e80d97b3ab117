"""What one call brings to a run's memory, and what the memory makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.prompt.body import Split
from sidecar.prompt.format import Format
from sidecar.run.frame import Framed
from sidecar.run.received import Read
from sidecar.trim.own_text import Room
from sidecar.trim.revision import Revision
from sidecar.trim.stages import Inputs

Count = Callable[[str], int]
Put = Callable[[str, bytes, str], None]
"""Store an original: id, bytes, content type."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call brings."""

    format: Format
    split: Split
    reads: list[Read]
    inputs: Inputs
    room: Room
    pinned: frozenset[int]
    revision: Revision | None
    count_many: Callable[[Sequence[str]], Sequence[int]]


@dataclass(slots=True)
class Result:
    """What one call made of it. Tokens."""

    framed: Framed
    own_tokens: int
    sent_tokens: int
    after: int
    first_changed: int
    kept: int
    batch_point: bool = False
    compacted: bool = False
    revision_applied: bool | None = None
    """None: none was sent, or this process knew the run."""
