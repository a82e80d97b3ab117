"""Queries and results of a search in a run's history, as plain data without wire types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.values import GIB, KIB, MIB, byte_count, setting, whole


class SearchOutcome(StrEnum):
    """Outcome of a search."""

    FOUND = "found"
    NOTHING_FOUND = "nothing_found"
    RUN_UNKNOWN = "run_unknown"


MOST_SNIPPETS = 50
"""Most snippets of a request."""
MOST_SNIPPET_TOKENS = 4_000
"""Most tokens of a snippet: a page of a retrieval."""
MOST_TOTAL_TOKENS = 50_000
"""Most tokens of an answer; longer texts should be retrieved."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The bounds of a search."""

    max_snippets: int = setting(
        5,
        whole(1, MOST_SNIPPETS, "snippets"),
        "Snippets of one answer, where the request names no number.",
        "What a model reads without losing the thread.",
    )
    snippet_tokens: int = setting(
        300,
        whole(32, MOST_SNIPPET_TOKENS, "tokens"),
        "Tokens of one snippet, where the request names no number.",
        "A screenful of code.",
    )
    total_tokens: int = setting(
        1_500,
        whole(200, MOST_TOTAL_TOKENS, "tokens"),
        "Tokens of a whole answer, where the request names no number; at least snippet_tokens.",
        "A hundredth of a common window.",
    )
    query_bytes: int = setting(
        4_096,
        byte_count(64, MIB),
        "Bytes of a query; a longer one is refused.",
        "Ten times what a person or a model asks.",
        advanced=True,
    )
    query_terms: int = setting(
        64,
        whole(1, 1_024, "terms"),
        "Terms of a query that count, the rarest first.",
        "More only add time.",
        advanced=True,
    )
    index_bytes: int = setting(
        67_108_864,
        byte_count(64 * KIB, 1024 * GIB),
        "Index of one run, estimated, a part of limits.memory_bytes; beyond it the oldest half is left out.",
        "64 MiB hold about 50 MB of text.",
        advanced=True,
    )


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A query. Numbers are within their bounds, which the caller checks; 0 selects the configured value."""

    query: str
    roles: frozenset[Role] = frozenset()
    """Empty: all roles."""
    tools: frozenset[str] = frozenset()
    """Empty: all tools."""
    first_iteration: int = 0
    last_iteration: int = 0
    """0: to the end."""
    stash_ids: frozenset[str] = frozenset()
    """Empty: all items."""
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
    """BM25 score of its best passage; 0 if it was found by an exact id or as the neighbour of a match."""
    tokens: int
    repeats: int = 0
    """Number of older items with the same text, which are not shown."""
    elsewhere: tuple[int, ...] = ()
    """Lines of the item, outside of what is shown, near which more of the query's words are; a few at most."""


@dataclass(frozen=True, slots=True)
class InPrompt:
    """An item that matches well and is whole in the returned prompt: only the lines of its best passage are named."""

    item: HistoryItem
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search."""

    outcome: SearchOutcome
    message: str
    """One sentence for the model, without text of a prompt."""
    snippets: Sequence[Snippet] = ()
    rendered: str = ""
    rendered_tokens: int = 0
    matching_items: int = 0
    first_iteration: int = 0
    last_iteration: int = 0
    gone_items: int = 0
    terms_left_out: int = 0
    not_indexed_items: int = 0
    """Items within the query's filters that were not searched, or only in part, as they are not indexed yet."""
    first_not_indexed_iteration: int = 0
    """First iteration that has such an item; 0 if there is none."""
    last_not_indexed_iteration: int = 0
    shortened: bool = False
    """Whether snippets were left out or shortened, or lines of `in_prompt` left out, to stay within the answer's
    tokens."""
    in_prompt: Sequence[InPrompt] = ()
    """Items that would be among the snippets if they were not whole in the returned prompt, best first."""
    seconds: float = field(default=0.0, compare=False)
    """Time taken, including the indexing of waiting items. Measured, never used for a decision."""
