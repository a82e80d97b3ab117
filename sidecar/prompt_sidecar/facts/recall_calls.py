"""What can be asked of a run's memory: an original by its id, and a search."""

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
    """0: the configured page."""
    offset: int = 0
    """`next_offset` of the page before."""


@dataclass(frozen=True, slots=True)
class RetrieveAnswer:
    """What a retrieval found."""

    outcome: Outcome
    message: str
    page: Page = field(default_factory=Page)
    """Empty, but for a HIT."""
    tool: str = ""
    """The one whose result or arguments the original is; empty: none, or not known to this process."""


@dataclass(frozen=True, slots=True)
class InPrompt:
    """What of an original stands whole in the prompt that was returned last."""

    prompts: int
    """How many prompts of the run there were; what was recalled since the last one is in none yet."""
    iteration: int
    """Of the model call that the last one was for."""
    original: int = 0
    """The iteration whose part of the history the original itself is in; 0: it is not there, or not whole."""
    pages: Mapping[str, int] = field(default_factory=dict)
    """By their tags, the recalled pages that are there, with the iterations in which the model asked for them."""
    cut: frozenset[str] = frozenset()
    """Tags of pages that were trimmed in the first prompt that had them, so that the model never had them whole."""


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A search of a run's history."""

    caller: str
    run_id: str
    query: SearchQuery
    seconds: float = inf
    """For which the caller still waits; infinite: nobody has said."""
