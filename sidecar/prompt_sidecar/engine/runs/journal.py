"""The journal of a run: facts about its newest answered prompts and recalls, and the sums of all of them.

It is kept for people who look at a single run, and no decision reads it. So it counts among the caches of its run, and
where memory is short its entries are dropped before any original or any run; the sums stay. Where no page for people is
served, nothing is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from heapq import nlargest
from operator import attrgetter
from threading import Lock
from typing import Final

from prompt_sidecar.facts.guard_calls import FindingAction
from prompt_sidecar.facts.journals import (
    ItemEntry,
    PromptEntry,
    RecallEntry,
    RuleFindings,
    RunJournal,
    RunSummary,
    TrimmedItems,
)
from prompt_sidecar.facts.trim_calls import Trim, TrimAnswer
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.trim.entries import CUTS, Action, Reason
from prompt_sidecar.trim.own_text import plain_name

ENTRY_BYTES: Final = 500
"""Bytes of a prompt's entry without its parts; a recall's entry takes less."""
PART_BYTES: Final = 180
"""Bytes of one kind of trim, or one finding, in an entry."""
MOST_FOUND: Final = 16
"""Pairs of rule and action that an entry names; further ones are in the sums only."""
MOST_ITEMS: Final = 64
"""Items that an entry names, those that save most; further ones are in the entry's sums only."""
MOST_TOOLS: Final = 8
"""Tools that an entry names."""
MODEL_CHARACTERS: Final = 200
"""Characters of a model's name that are kept, as an agent may choose a name of any length."""
ID_CHARACTERS: Final = 64
"""Characters of a requested id that are kept, as the model may ask for anything."""
BOUND: Final = "admin.run_entries"


class Journal:
    """Thread-safe: recalls do not wait for the lock of their run, which a prompt may hold for long."""

    def __init__(self, most: int, reached: Callable[[str], None]) -> None:
        """Keep `most` entries of each kind; 0 keeps nothing.

        `reached` is called with the limit's name for each dropped entry.
        """
        self._most = most
        self._reached = reached
        self._lock = Lock()
        self._prompts: deque[PromptEntry] = deque()
        self._recalls: deque[RecallEntry] = deque()
        self._refusals: Counter[str] = Counter()
        self._forgotten = 0
        self._sums: Counter[str] = Counter()
        self._iteration = 0
        self._model = ""
        self.kept_bytes = 0
        """Bytes, estimated."""

    def answered(self, answer: TrimAnswer, at: float, find: Callable[[str], HistoryItem | None]) -> None:
        """Record an answered prompt; `at`: the time by the run's clock; `find` returns an item of the history by id."""
        if not self._most:
            return
        entry = entry_of(answer, at, find)
        with self._lock:
            self._iteration = answer.iteration
            self._model = answer.model[:MODEL_CHARACTERS] or self._model
            self._sums["prompts"] += 1
            self._sums["trimmed"] += sum(each.items for each in entry.trimmed if each.action in CUTS)
            self._sums["condensed"] += sum(each.tokens for each in entry.trimmed if each.action not in CUTS)
            self._sums["unfit"] += not entry.fits
            self._sums["breaks"] += entry.cache_break is not None
            self._sums["findings"] += sum(each.count for each in answer.guard.findings)
            self._add(self._prompts, entry)

    def recalled(self, stash_id: str, outcome: str, tokens: int, at: float, by: str = "") -> None:
        """Record a recall `by` a tool or a method; without an id it was a search of the run's history."""
        if not self._most:
            return
        with self._lock:
            entry = RecallEntry(at, self._iteration, stash_id[:ID_CHARACTERS], outcome, tokens, by)
            self._sums["recalls" if stash_id else "searches"] += 1
            self._sums["failed_recalls"] += entry.failed
            self._add(self._recalls, entry)

    def refused(self, reason: str, times: int = 1) -> None:
        """Record refused prompts; `reason` is a reason of the tree of errors."""
        if self._most:
            with self._lock:
                self._refusals[reason] += times

    def forget(self) -> None:
        """Drop the entries; the sums stay."""
        with self._lock:
            self._forgotten += len(self._prompts) + len(self._recalls)
            self._prompts.clear()
            self._recalls.clear()
            self.kept_bytes = 0

    def summary(self, run: RunSummary) -> RunSummary:
        """Return the run's summary with the journal's counts."""
        with self._lock:
            sums = self._sums
            return replace(
                run,
                prompts=sums["prompts"],
                trimmed=sums["trimmed"],
                condensed=sums["condensed"],
                recalls=sums["recalls"],
                searches=sums["searches"],
                breaks=sums["breaks"],
                findings=sums["findings"],
                refused=self._refusals.total(),
                model=self._model,
                failed_recalls=sums["failed_recalls"],
                unfit=sums["unfit"],
            )

    def read(self, run: RunSummary, ahead: float) -> RunJournal:
        """Return the whole journal. `ahead`: seconds since the epoch less the run's clock."""
        with self._lock:
            prompts, recalls = tuple(self._prompts), tuple(self._recalls)
            refusals, forgotten = dict(self._refusals), self._forgotten
        return RunJournal(
            self.summary(run),
            tuple(replace(each, at=each.at + ahead) for each in prompts),
            tuple(replace(each, at=each.at + ahead) for each in recalls),
            refusals,
            forgotten,
        )

    def _add(self, entries: deque[PromptEntry] | deque[RecallEntry], entry: PromptEntry | RecallEntry) -> None:
        entries.append(entry)  # type: ignore[arg-type] # each kind in its own queue
        self.kept_bytes += _bytes(entry)
        if len(entries) > self._most:
            self.kept_bytes -= _bytes(entries.popleft())
            self._forgotten += 1
            self._reached(BOUND)


def entry_of(answer: TrimAnswer, at: float, find: Callable[[str], HistoryItem | None]) -> PromptEntry:
    """Return the journal's entry for an answer; `find` returns an item of its history by its id."""
    items: Counter[tuple[Action, Reason]] = Counter()
    tokens: Counter[tuple[Action, Reason]] = Counter()
    for trim in answer.news.trims:
        items[trim.action, trim.reason] += 1
        tokens[trim.action, trim.reason] += trim.tokens_saved
    found: Counter[tuple[str, FindingAction]] = Counter()
    for finding in answer.guard.findings:
        found[finding.rule, finding.action] += finding.count
    return PromptEntry(
        at=at,
        iteration=answer.iteration,
        before=answer.tokens.before,
        after=answer.tokens.after,
        limit=answer.tokens.limit,
        fits=answer.fits,
        kept=answer.cache.kept,
        rewritten=answer.cache.rewritten,
        cache_break=answer.news.cache_break,
        trimmed=tuple(
            TrimmedItems(action, reason, count, tokens[action, reason]) for (action, reason), count in items.items()
        ),
        findings=tuple(RuleFindings(rule, action, count) for (rule, action), count in found.most_common(MOST_FOUND)),
        observed_only=answer.prompt.observed_only,
        items=tuple(
            _item_of(trim, find(trim.stash_id))
            for trim in nlargest(MOST_ITEMS, answer.news.trims, key=attrgetter("tokens_saved"))
            if trim.stash_id
        ),
        tools=tuple(sorted({plain_name(tool) for tool in answer.news.tools}))[:MOST_TOOLS],
    )


def _item_of(trim: Trim, item: HistoryItem | None) -> ItemEntry:
    return ItemEntry(
        stash_id=trim.stash_id,
        tool=plain_name(item.tool) if item is not None and item.tool else "",
        kind=trim.kind,
        size=item.size if item is not None else 0,
        first=item.iteration if item is not None else 0,
        action=trim.action,
        reason=trim.reason,
        tokens=trim.tokens_saved,
    )


def _bytes(entry: PromptEntry | RecallEntry) -> int:
    if isinstance(entry, RecallEntry):
        return ENTRY_BYTES
    parts = len(entry.trimmed) + len(entry.findings) + len(entry.items) + len(entry.tools)
    return ENTRY_BYTES + PART_BYTES * parts
