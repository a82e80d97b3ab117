"""What to look for in a run's history, and what was found: frozen facts, free of wire types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.item import HistoryItem


class SearchOutcome(StrEnum):
    """What a search came to."""

    FOUND = "found"
    NOTHING_FOUND = "nothing_found"
    RUN_UNKNOWN = "run_unknown"


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The bounds of a search: each with its default and the reason for it."""

    max_snippets: int = 5
    """Snippets of one answer where none are asked for: what a model reads without losing the thread."""
    snippet_tokens: int = 300
    """Tokens of one snippet: a screenful of code."""
    total_tokens: int = 1_500
    """Tokens of a whole answer: a hundredth of a common window."""
    query_bytes: int = 4_096
    """Bytes of a query: ten times what a person or a model asks; a longer one is refused."""
    query_terms: int = 64
    """Terms of a query that count, the rarest first: more only add time."""
    index_bytes: int = 67_108_864
    """Bytes of one run's index, estimated: 64 MiB holds about 50 MB of text; past it the oldest half is left out."""


MOST_SNIPPETS = 50
"""Snippets that can be asked for."""
MOST_SNIPPET_TOKENS = 4_000
"""Tokens of one snippet that can be asked for: a page of a retrieval."""
MOST_TOTAL_TOKENS = 50_000
"""Tokens of an answer that can be asked for: more is a retrieval's business."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for; the numbers are within their bounds (the caller has checked), 0: the configured ones."""

    query: str
    roles: frozenset[Role] = frozenset()
    """Empty: all."""
    tools: frozenset[str] = frozenset()
    """Empty: all."""
    first_iteration: int = 0
    last_iteration: int = 0
    """0: to the end."""
    stash_ids: frozenset[str] = frozenset()
    """Empty: all."""
    max_snippets: int = 0
    snippet_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Snippet:
    """A stretch of one item, verbatim. Bytes from 0, end not included; lines from 1, both included."""

    item: HistoryItem
    start_byte: int
    end_byte: int
    first_line: int
    last_line: int
    total_lines: int
    text: str
    score: float
    """BM25 score of its best passage; 0 where an exact id found it."""
    tokens: int
    repeats: int = 0
    """Older items with the same text, not shown."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found."""

    outcome: SearchOutcome
    message: str
    """One sentence for the model; no text of a prompt in it."""
    snippets: Sequence[Snippet] = ()
    rendered: str = ""
    rendered_tokens: int = 0
    matching_items: int = 0
    first_iteration: int = 0
    last_iteration: int = 0
    gone_items: int = 0
    terms_left_out: int = 0
    shortened: bool = False
    """Whether snippets were left out or shortened to keep within the tokens of a whole answer."""
    seconds: float = field(default=0.0, compare=False)
    """What it took, indexing of what waited included. Measured, never read by a decision."""
