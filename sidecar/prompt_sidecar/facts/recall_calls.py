"""What can be asked of a run's memory: an original by its id, and a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.selection import Selection, Stretch


@dataclass(frozen=True, slots=True)
class RetrieveCall:
    """An original to fetch."""

    caller: str
    run_id: str
    stash_id: str
    selection: Selection = None
    page_tokens: int = 0
    """0: the configured page."""
    offset: int = 0
    """`next_offset` of the page before."""


@dataclass(frozen=True, slots=True)
class RetrieveAnswer:
    """What a retrieval found."""

    outcome: Outcome
    message: str
    content: bytes = b""
    content_type: str = ""
    total_bytes: int = 0
    total_lines: int = 0
    stretches: Sequence[Stretch] = ()
    more: bool = False
    next_offset: int = 0
    matching_lines: int = 0
    content_tokens: int = 0
    tool: str = ""
    """The one whose result or arguments the original is; empty: none, or not known to this process."""


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search of a run's history."""

    caller: str
    run_id: str
    query: SearchQuery
    seconds: float = inf
    """For which the caller still waits; infinite: nobody has said."""
