"""A result is condensed when it is first seen, and again from the original whenever that is sent again.

The decision is kept as numbers (`Condensing`), not as text: the same original and call give the same bytes. A decision
holds for the life of its run, even if policy or version change later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from prompt_sidecar.prompt.utf8 import utf8_size
from prompt_sidecar.trim.condense.condensing import (
    LEAST_BYTES,
    VERSION,
    VERSIONS,
    Level,
    condensed,
    labelled,
    reduced,
)
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.entries import Condensing, Entry
from prompt_sidecar.trim.policy import Condense, Policy

_LEVELS: Final = {Condense.EXACT: Level.EXACT, Condense.SAFE: Level.SAFE, Condense.FULL: Level.FULL}


class CondensedResult(NamedTuple):
    """A condensed result."""

    text: str
    """The text with its label."""
    how: Condensing
    advertised: bool
    """Whether the label shows the id."""


@dataclass(frozen=True, slots=True)
class Condenser:
    """Condenses new results as a policy says."""

    level: Level | None
    """The policy's level; None: nothing is condensed."""
    skip_tools: Collection[str]
    fetch_tools: Collection[str]
    recall: bool
    """Whether the model can recall. If not, only reductions that can be read back are made."""
    count: Callable[[str], int]
    version: int = VERSION
    """The version of the reductions: the one that the run began with."""

    @classmethod
    def of(cls, policy: Policy, count: Callable[[str], int], *, recall: bool, version: int = VERSION) -> Condenser:
        """Return the condenser that a policy asks for."""
        level, fetch_tools = _LEVELS.get(policy.condense), policy.condense_fetch_tools
        return cls(level, policy.condense_skip_tools, fetch_tools, recall, count, version)

    def condense(self, entry: Entry, text: str) -> CondensedResult | None:
        """Condense a result. Returns None if it stays unchanged."""
        if self.level is None or entry.tool in self.skip_tools:
            return None
        call = entry.call

        def count(of: str) -> int:
            return entry.full_tokens if of is text else self.count(of)

        made = condensed(
            text,
            call,
            self.level,
            count,
            fetch_tools=self.fetch_tools,
            only_what_can_be_read_back=not self.recall,
            reductions=VERSIONS[self.version],
        )
        if made is None:
            return None
        shown = labelled(made.text, entry.stash_id if self.recall else "")
        size, tokens = utf8_size(shown), self.count(shown)
        if size >= entry.size or tokens >= entry.full_tokens:
            return None
        page = call is not None and call.tool in self.fetch_tools
        how = Condensing(self.version, self.level, page, size, tokens, made.savings)
        return CondensedResult(shown, how, self.recall)


def again(entry: Entry, text: str) -> str:
    """Condense a result again from its original, which may have been masked since the decision."""
    how, call = entry.condensed, entry.call
    if how is None:
        return text
    reductions = VERSIONS[how.version]
    if not entry.advertised:
        reductions = [reduction for reduction in reductions if reduction.can_be_read_back]
    fetch_tools = (call.tool,) if how.page and call is not None else ()
    made = reduced(Output(text, call), how.level, fetch_tools, reductions)
    return labelled(text if made is None else made.text, entry.stash_id if entry.advertised else "")


def is_long_enough(size: int) -> bool:
    """Whether a result of this many bytes is long enough to be condensed."""
    return size >= LEAST_BYTES
