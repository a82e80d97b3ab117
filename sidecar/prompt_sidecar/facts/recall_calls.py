"""Requests to a run's memory: an original by its id, and a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.selection import Page, Selection


@dataclass(frozen=True, slots=True)
class RetrieveCall:
    """An original to fetch."""

    caller: str
    run_id: str
    stash_id: str
    selection: Selection = None
    page_tokens: int = 0
    """0: the configured page size."""
    offset: int = 0
    """`next_offset` of the previous page."""


@dataclass(frozen=True, slots=True)
class RetrieveAnswer:
    """The result of a retrieval."""

    outcome: Outcome
    message: str
    page: Page = field(default_factory=Page)
    """Empty except for a HIT."""
    tool: str = ""
    """The tool whose result or arguments the original is; empty if there is none, or if it is unknown to this process.
    """


@dataclass(frozen=True, slots=True)
class InPrompt:
    """Which parts of an original are whole in the last returned prompt."""

    prompts: int
    """Number of the run's prompts; content recalled since the last one is in none yet."""
    iteration: int
    """The iteration of the last prompt."""
    original: int = 0
    """The iteration of the original itself; 0 if it is not in the prompt, or not whole."""
    pages: Mapping[str, int] = field(default_factory=dict)
    """The recalled pages in the prompt, by their tags, with the iterations in which the model requested them."""
    cut: frozenset[str] = frozenset()
    """Tags of pages that were trimmed in the first prompt with them, so that the model never had them whole."""


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search of a run's history."""

    caller: str
    run_id: str
    query: SearchQuery
    seconds: float = inf
    """Seconds that the caller still waits; infinite if there is no deadline."""
