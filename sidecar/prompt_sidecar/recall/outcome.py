"""Outcomes of a retrieval, as a word for programs and a sentence for models.

The sentences state facts: the range shown, the whole size, and whether asking again can help. A model once requested an
expired id 25 times because the answer did not state that it was final; so every final outcome does. The sentences
contain numbers only, never text of an original, and never name a tool to call next.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from prompt_sidecar.recall.selection import Page


class Outcome(StrEnum):
    """Outcome of a retrieval. All but RUN_UNKNOWN are final."""

    HIT = "hit"
    EXPIRED = "expired"
    EVICTED = "evicted"
    NOT_FOUND = "not_found"
    RUN_UNKNOWN = "run_unknown"


SENTENCES: Final[dict[Outcome, str]] = {
    Outcome.EXPIRED: (
        "The content of this id has expired: it was kept for its time to live and is gone. Asking again will not help."
    ),
    Outcome.EVICTED: (
        "The content of this id was evicted to keep within the byte budget and is gone. Asking again will not help."
    ),
    Outcome.NOT_FOUND: (
        "This run has no content under this id. Asking again will not help; the valid ids are those in the registry."
    ),
    Outcome.RUN_UNKNOWN: (
        "This run is not known here, so nothing can be looked up yet. "
        "The run's prompt must be sent for trimming again first; after that the same id can be asked for again."
    ),
}
"""The sentence of every outcome but HIT, whose sentence depends on the page."""


def describe(outcome: Outcome) -> str:
    """Return the sentence for an outcome without content. A HIT is described by `describe_page`."""
    return SENTENCES[outcome]


def describe_page(page: Page, *, searched: bool = False) -> str:
    """Return the sentence for a HIT: the range shown, the whole size, and where more follows.

    `searched`: whether the page is for a pattern. Byte ranges exclude their end, line ranges include it.
    """
    size = f"{page.total_bytes:,} bytes and {page.total_lines:,} lines"
    found = f"{page.matching_lines:,} matching lines; " if searched else ""
    if not page.stretches:
        if searched and not page.matching_lines:
            return f"No line matches the pattern; the whole is {size}."
        return f"{found}nothing further to show; the whole is {size}."
    first, last = page.stretches[0], page.stretches[-1]
    stretches = f" in {len(page.stretches):,} stretches" if len(page.stretches) > 1 else ""
    more = f"; more follows at offset {page.next_offset}" if page.more else "; nothing more follows"
    return (
        f"{found}bytes {first.start_byte:,}-{last.end_byte:,} of {page.total_bytes:,}, "
        f"lines {first.first_line:,}-{last.last_line:,} of {page.total_lines:,}{stretches}{more}."
    )
