"""The journal of a run: facts about its answered prompts and its recalls, the newest of each, and the sums of all.

It is kept for people who look at a single run, and no decision reads it. So it counts among the caches of its run, and
where memory is short its entries go before any original or any run does; the sums stay. Where nobody can look, nothing
is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

from prompt_sidecar.facts.guard_calls import FindingAction
from prompt_sidecar.facts.journals import Found, PromptEntry, RecallEntry, RunJournal, RunSummary, TrimmedItems
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.entries import CUTS, Action, Reason

ENTRY_BYTES: Final = 500
"""What a prompt's entry takes, without what follows; a recall's takes less."""
PART_BYTES: Final = 180
"""What one kind of trim takes in an entry, or one finding."""
MOST_FOUND: Final = 16
"""Rules with their actions that an entry names; further ones are in the sums only."""
ID_CHARACTERS: Final = 64
"""Of an id that was asked for: the model may ask for anything."""
BOUND: Final = "admin.run_entries"


class Journal:
    """Thread-safe: recalls do not wait for the lock of their run, which a prompt may hold for long."""

    def __init__(self, most: int, reached: Callable[[str], None]) -> None:
        """Keep `most` entries of each kind, 0: nothing. `reached` is called with the bound for each that goes."""
        self._most = most
        self._reached = reached
        self._lock = Lock()
        self._prompts: deque[PromptEntry] = deque()
        self._recalls: deque[RecallEntry] = deque()
        self._refusals: Counter[str] = Counter()
        self._forgotten = 0
        self._sums: Counter[str] = Counter()
        self._iteration = 0
        self.kept_bytes = 0
        """Estimated."""

    def answered(self, answer: TrimAnswer, at: float) -> None:
        """A prompt was answered; `at` is the time by the run's clock."""
        if not self._most:
            return
        entry = entry_of(answer, at)
        with self._lock:
            self._iteration = answer.iteration
            self._sums["prompts"] += 1
            self._sums["trimmed"] += sum(each.items for each in entry.trimmed if each.action in CUTS)
            self._sums["condensed"] += sum(each.tokens for each in entry.trimmed if each.action not in CUTS)
            self._sums["breaks"] += entry.cache_break is not None
            self._sums["findings"] += sum(each.count for each in answer.guard.findings)
            self._add(self._prompts, entry)

    def recalled(self, stash_id: str, outcome: str, tokens: int, at: float) -> None:
        """An original was asked for; without an id: the run's history was searched."""
        if not self._most:
            return
        with self._lock:
            self._sums["recalls" if stash_id else "searches"] += 1
            self._add(self._recalls, RecallEntry(at, self._iteration, stash_id[:ID_CHARACTERS], outcome, tokens))

    def refused(self, reason: str) -> None:
        """A prompt was refused; `reason` is one of the tree of errors."""
        if self._most:
            with self._lock:
                self._refusals[reason] += 1

    def forget(self) -> None:
        """Give up the entries; the sums stay."""
        with self._lock:
            self._forgotten += len(self._prompts) + len(self._recalls)
            self._prompts.clear()
            self._recalls.clear()
            self.kept_bytes = 0

    def summary(self, run: RunSummary) -> RunSummary:
        """The run's line with the counts."""
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
            )

    def read(self, run: RunSummary, ahead: float) -> RunJournal:
        """All that is kept. `ahead`: seconds since the epoch less the run's clock."""
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


def entry_of(answer: TrimAnswer, at: float) -> PromptEntry:
    """What the journal keeps of an answer."""
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
        findings=tuple(Found(rule, action, count) for (rule, action), count in found.most_common(MOST_FOUND)),
        observed_only=answer.prompt.observed_only,
    )


def _bytes(entry: PromptEntry | RecallEntry) -> int:
    if isinstance(entry, RecallEntry):
        return ENTRY_BYTES
    return ENTRY_BYTES + PART_BYTES * (len(entry.trimmed) + len(entry.findings))
