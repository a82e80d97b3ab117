"""The news of one call, which no earlier answer of its run has reported, gathered during the call.

A run may give its memory up and build it again from the next prompt; decisions that are made again are not news. So if
the memory was empty, only decisions after the run's last answer count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from prompt_sidecar.facts.trim_calls import CacheBreak, News, StashEntry, ToolNews, Trim
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import CUTS, Action, Entry, Reason, Record
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.names import NAMES_OF_MESSAGE
from prompt_sidecar.trim.own_text import plain_name
from prompt_sidecar.trim.repeated_calls import MOST_LISTED, Repetition

_WITHOUT_MARKER: Final = frozenset({ItemKind.ARGUMENTS, ItemKind.OPAQUE, ItemKind.REASONING})
"""Clipped arguments become empty arguments, without room for an id; opaque items are never clipped by themselves; and
reasoning leaves no label."""
MOST_SIZES: Final = 1_000
"""Most sizes of single results that one answer reports: some fifty for each call of an iteration with many calls. A
prompt that begins a run with a long history brings more; their sums are exact."""
_RESULTS: Final = frozenset({ItemKind.RESULT, ItemKind.IMAGE})
_MARKED: Final = frozenset({Action.ELIDED, Action.CLIPPED})
MOST_DECLARED: Final = 64
"""Tools of one answer that are searched in the agent's definitions: more than the figures distinguish."""
MOST_SCHEMA_BYTES: Final = 1_048_576
"""Bytes of definitions that are searched for one answer: with so many tools some 30 ms at worst."""
_NO_TOOL: Final = ToolNews()


@dataclass(slots=True)
class GatheredNews:
    """The news so far."""

    since: int = 0
    """Iteration up to which decisions have been reported."""
    trims: list[Trim] = field(default_factory=list)
    repetitions: list[Repetition] = field(default_factory=list)
    """Repeated calls among the new messages."""
    advertised: int = 0
    whole: int = 0
    trimmed: int = 0
    registry_cut: bool = False
    texts_forgotten: int = 0
    ambiguous: int = 0
    names_cut: int = 0
    condensed: dict[str, int] = field(default_factory=dict)
    """Tokens that condensing has saved, by reduction."""
    tools: dict[str, ToolNews] = field(default_factory=dict)
    sizes: list[tuple[str, int]] = field(default_factory=list)

    def record(self, record: Record, iteration: int) -> None:
        """Add a new message of an iteration."""
        self.names_cut += iteration > self.since and len(record.names) == NAMES_OF_MESSAGE
        if record.answers and iteration >= self.since:  # the results of an iteration are in the next iteration's prompt
            self._bring(record)

    def take_over(self, iteration: int, records: Sequence[Record], length: int) -> None:
        """Exclude what a revision covers, which was reported elsewhere; `records` come after its `length` messages."""
        self.since = iteration
        self.tools.clear()
        self.sizes.clear()
        for record in records:
            if record.answers:
                self._bring(record)
        for again in self.repetitions:
            if again.message >= length:
                self._add(again.tool, repeats=1)

    def repeat(self, repetitions: Sequence[Repetition], ledger: Ledger, *, passes: int = 0) -> None:
        """Add the repeated calls of a new message; `ledger` is in the state after the last prompt.

        `passes`: the message's iteration, if it is ambiguous.
        """
        self.repetitions += repetitions
        self.ambiguous += passes > self.since
        for again in repetitions:
            if again.iteration < self.since:  # as in `record`
                continue
            self._add(again.tool, repeats=1)
            older = [(ledger.records[at], item) for at, item in again.older if at < len(ledger)]
            if any(record.dropped or record.entries[item].action in CUTS for record, item in older):
                self.trimmed += 1
            else:
                self.whole += 1

    def trim(self, before: Sequence[Trim], now: Sequence[Trim], record: Record) -> Sequence[Trim]:
        """Add a message's changed trims and return the new ones.

        A result that was condensed and elided at once has two.
        """
        known = {trim.item_index: trim for trim in before}
        new: list[Trim] = []
        for trim in now:
            last = known.get(trim.item_index)
            if trim == last or trim.decided_iteration <= self.since:
                continue
            entry = record.entries[trim.item_index]
            if last is None and entry.condensed is not None:
                last = self._condense(entry, trim)
                new += [] if last is None else [last]
                if last is not None and trim.action is Action.CONDENSED:
                    continue
            if last is None:
                # An item that is dropped or clipped now may have been trimmed less before the memory was given up.
                reported = entry.full_tokens - entry.tokens_at(self.since)
                new.append(replace(trim, tokens_saved=trim.tokens_saved - reported) if reported else trim)
            elif trim.tokens_saved > last.tokens_saved or trim.action is not last.action:
                new.append(replace(trim, tokens_saved=max(0, trim.tokens_saved - last.tokens_saved)))
        self.trims += new
        for trim in new:
            if trim.kind in _RESULTS and record.entries[trim.item_index].result >= 0:
                self._add(record.entries[trim.item_index].tool, trimmed=trim.tokens_saved)
        return new

    def _condense(self, entry: Entry, trim: Trim) -> Trim | None:
        """Return a condensed result's trim, whatever came later; None if reported before, or done elsewhere."""
        how, savings = entry.condensed, entry.condensed.savings if entry.condensed is not None else ()
        if how is None or not savings or entry.tokens_at(self.since) < entry.full_tokens:
            return None
        saved = entry.full_tokens - how.tokens
        characters = sum(each.characters for each in savings)
        left = saved
        for each in savings[1:]:  # the first gets the rounding difference
            part = saved * each.characters // characters
            self.condensed[each.reduction] = self.condensed.get(each.reduction, 0) + part
            left -= part
        first = savings[0].reduction
        self.condensed[first] = self.condensed.get(first, 0) + left
        return replace(trim, action=Action.CONDENSED, reason=Reason.CONDENSE, tokens_saved=saved)

    def show(self, new: Sequence[Trim], entries: Sequence[StashEntry], ledger: Ledger, shown: set[str]) -> None:
        """Add ids that are shown: by markers of new trims, and by the registry's entries if it was written again."""
        for trim in new:
            entry = ledger.records[trim.message_index].entries[trim.item_index]
            marked = trim.action in _MARKED and trim.kind not in _WITHOUT_MARKER and entry.advertised
            if marked and trim.stash_id not in shown:
                shown.add(trim.stash_id)
                self.advertised += entry.first > self.since  # otherwise it was shown before the memory was given up
        for listed in entries:
            if listed.stash_id not in shown:
                shown.add(listed.stash_id)
                known = ledger.messages.by_id.get(listed.stash_id)
                self.advertised += known is not None and self._listed_first(ledger.records[known.message], known)

    def news(self, cache_break: CacheBreak | None, schemas: Sequence[bytes | None]) -> News:
        """Return all news. `schemas`: the body's members that define tools, as JSON; None for a missing member."""
        return News(
            trims=tuple(self.trims),
            advertised=self.advertised,
            cache_break=cache_break,
            repeated_whole=self.whole,
            repeated_trimmed=self.trimmed,
            registry_cut=self.registry_cut,
            texts_forgotten=self.texts_forgotten,
            ambiguous=self.ambiguous,
            names_cut=self.names_cut,
            condensed=dict(self.condensed),
            tools=dict(self.tools),
            declared=_declared(self.tools, [each for each in schemas if each]),
            repeated=self.repetitions[-MOST_LISTED:],
            result_sizes=tuple(self.sizes),
        )

    def _bring(self, record: Record) -> None:
        """Add the results of a message."""
        brought: dict[int, tuple[str, int]] = {}
        for entry in record.entries:
            if entry.result >= 0:
                tool, tokens = brought.get(entry.result, (entry.tool, 0))
                brought[entry.result] = tool or entry.tool, tokens + entry.full_tokens
        for tool, tokens in brought.values():
            self._add(tool, results=1, brought=tokens)
        self.sizes += list(brought.values())[: MOST_SIZES - len(self.sizes)]

    def _add(self, tool: str, *, results: int = 0, repeats: int = 0, brought: int = 0, trimmed: int = 0) -> None:
        known = self.tools.get(tool, _NO_TOOL)
        self.tools[tool] = ToolNews(
            known.results + results, known.repeats + repeats, known.brought + brought, known.trimmed + trimmed
        )

    def _listed_first(self, record: Record, entry: Entry) -> bool:
        """Whether an item that the registry lists cannot have been shown before."""
        if entry.first and entry.kind not in _WITHOUT_MARKER:  # its marker has shown it
            return entry.first > self.since
        return max(entry.decided, record.dropped_in if record.dropped else 0) > self.since


def _declared(tools: Iterable[str], schemas: Sequence[bytes]) -> frozenset[str]:
    """Return the plain names among these that occur in the definitions, as JSON strings."""
    if not schemas or sum(map(len, schemas)) > MOST_SCHEMA_BYTES:
        return frozenset()
    names = [tool for tool in islice(tools, MOST_DECLARED) if tool and plain_name(tool) == tool]
    return frozenset(name for name in names if any(b'"%s"' % name.encode() in each for each in schemas))
