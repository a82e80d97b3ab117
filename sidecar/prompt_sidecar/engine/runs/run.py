"""One run in this process: the state that makes its prompts, its recorded history, its tasks, and its sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Final

from prompt_sidecar.engine.runs.archive import ArchiveProgress
from prompt_sidecar.engine.runs.budget import ITEM_BYTES, MESSAGE_BYTES, RUN_BYTES, Name, RunOverhead
from prompt_sidecar.engine.runs.journal import Journal
from prompt_sidecar.engine.runs.marks import Marks
from prompt_sidecar.engine.runs.reported_usage import LearnedUsage
from prompt_sidecar.engine.runs.requests import Requests
from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.received import Draft
from prompt_sidecar.engine.steps.recording import Recorder
from prompt_sidecar.engine.steps.windows import RunWindows
from prompt_sidecar.engine.tools.shown_before import ShownBefore
from prompt_sidecar.engine.tools.tasks import TaskList
from prompt_sidecar.facts.archived import ArchivedRun
from prompt_sidecar.facts.comparison import Comparison
from prompt_sidecar.facts.figures import HistoryFigures, RunFigures
from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.journals import RunSummary
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.money import Spending
from prompt_sidecar.facts.totals import Event
from prompt_sidecar.facts.trim_calls import CacheFigures, TokenFigures, TrimAnswer
from prompt_sidecar.guard.ceilings import NOTHING
from prompt_sidecar.guard.masking import RunGuard
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.recall.history import History
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.tokens.calibration import Factors
from prompt_sidecar.trim.entries import Action

KEY_DIGITS: Final = 24
"""Hexadecimal digits of the digest that names a run where its journal is shown."""


class Run:
    """One run. `lock` guards everything except the history, which has a lock of its own."""

    def __init__(
        self,
        name: Name,
        key: bytes,
        other_keys: Sequence[bytes],
        now: float,
        *,
        number: int,
        limits: CoreLimits,
        stash: Stash,
        bounds: EventCounts[str],
        events: EventCounts[Event],
    ) -> None:
        """Begin a run.

        Args:
            name: its caller, and its id.
            key: makes its ids.
            other_keys: the run's keys derived from the sidecar's other keys.
            now: the time of the steady clock.
            number: which run of this process it is; a later one of the same name has another number.
            limits: its resource limits.
            stash: keeps its originals.
            bounds: counts resource limits that were reached.
            events: counts events of its tasks.
        """
        self.lock = Lock()
        self.tools_lock = Lock()
        """Held while one of the model's tool calls runs: that may take long, and prompts must not wait for it."""
        self.name = name
        self.key = key
        self.other_keys = other_keys
        self.stash_key = f"{key.hex()}.{number}"
        """The key of its part of the stash and of the vault. A run that begins again under the same name has another
        key, so originals that are stored after the run was forgotten are not taken for the new run's."""
        self._stash = stash
        self.memory = Memory(Recorder(key, limits.kept.original_bytes, other_keys))
        self.history = History(
            limits.search, partial(stash.peek, self.stash_key), partial(stash.alive, self.stash_key), bounds
        )
        self.tasks = TaskList(events)
        self.usage = LearnedUsage()
        self.windows = RunWindows()
        self.journal = Journal(limits.journal_entries, bounds.add)
        self.marks = Marks()
        self.size: HistorySize | None = None
        self.carried_factors: tuple[str, Factors] | None = None
        """The factors that the last prompt's tokens were counted with, and its model, which is unknown if they are from
        a revision. None if there was neither a prompt nor a revision."""
        self.shown_before = ShownBefore(limits.recall, bounds.add)
        self.guard = RunGuard(other_keys)
        self.draft: Draft | None = None
        """The parsed part of an interrupted call's prompt."""
        self.started = self.last_seen = now
        self.calls = 0
        self.in_use = 0
        """Calls that use the run or wait for it; the table's lock guards this field."""
        self.ended = False
        self.torn = False
        """Whether a call was interrupted while it changed the memory, which the next call then builds again."""
        self.registered = False
        """Whether it was counted as a run that began."""
        self.answered_iteration = 0
        """The iteration of the last answer. Decisions up to there were reported, though the memory may have forgotten
        them."""
        self.tokens: TokenFigures | None = None
        self.cache: CacheFigures | None = None
        self.sent_total = self.returned_total = 0
        self.comparison = Comparison()
        self.ceiling_cuts = 0
        """Cuts that were made for a ceiling below the limit."""
        self.spending = Spending()
        self.used = NOTHING
        """The use of all prompts; see `prompt_sidecar.engine.runs.metering`."""
        self.priced = False
        """Whether one of their models has a price."""
        self.archived = ArchiveProgress()
        self.searches = self.searches_found = self.tool_calls = 0
        self.requests = Requests()
        """What was done about its requests."""

    @property
    def unused(self) -> bool:
        """Whether no call has left anything in the run yet."""
        return not (self.calls or self.tasks.items or self.draft is not None or len(self.memory.ledger))

    def forget_caches(self) -> None:
        """Forget what the next prompt or search builds again, and the journal, which only people read."""
        self.forget_memory()
        self.draft = None
        self.history.drop_index()
        self.journal.forget()

    def forget_memory(self) -> None:
        """Give up what the next prompt makes again, piece by piece, so that other threads run in between.

        A call in progress keeps the memory that it uses, and puts it back.
        """
        pieces, self.memory = self.memory.pieces(), self.memory.fresh()
        while pieces:
            pieces.pop()

    def free(self) -> None:
        """Free the memory of a forgotten run: a long one's in pieces; a short one's is freed with the run."""
        if self.memory.long:
            self.forget_memory()

    def kept(self) -> RunOverhead:
        """What the run keeps in addition to its originals, estimated, in constant time; needs no lock."""
        memory, recorded = self.memory, self.history.figures()
        received = memory.received
        caches = self.journal.kept_bytes + (recorded.index_bytes if recorded.passages else 0)
        if received is not None:
            caches += received.kept_bytes + memory.rendered.size + MESSAGE_BYTES * len(memory.ledger)
            caches += memory.own.kept_bytes
            caches += sum(len(value) for value, _ in list(memory.members.values())) + sum(map(len, memory.system))
            caches += len(memory.system_read[0]) if memory.system_read is not None else 0
        facts = RUN_BYTES + ITEM_BYTES * recorded.items
        return RunOverhead(caches, facts + self.tasks.kept_bytes + self.shown_before.kept_bytes)

    def sum_up(self, answer: TrimAnswer) -> None:
        """Add an answer to the run's sums."""
        self.tokens, self.cache = answer.tokens, answer.cache
        self.answered_iteration = answer.iteration
        self.ceiling_cuts += bool(answer.tokens.ceiling and answer.cache.batch_point)
        if not answer.savings.sent_again:
            self.sent_total += answer.tokens.before
            self.returned_total += answer.tokens.after
        if answer.savings.compared is not None:
            self.comparison = self.comparison.plus(answer.savings.compared)
        if answer.savings.recount is not None:
            self.comparison = self.comparison.recounted(answer.savings.recount)
        self.journal.answered(answer, self.last_seen, self.history.item)

    def adopt(self, restored: ArchivedRun, ahead: float) -> None:
        """Take over the run's state from another process; once, except for tasks, which may have changed since.

        `ahead`: seconds since the epoch less the clock of `started`.
        """
        if restored.tasks is not None:
            self.tasks.restore(restored.tasks)
        if self.archived.adopted:
            return
        self.archived.adopted = True
        self.archived.revision_left = restored.revision
        was = restored.figures
        self.calls += was.calls if was is not None else restored.seen
        if was is None:
            return
        self.archived.restored = replace(was, started=was.started - ahead, last_seen=was.last_seen - ahead)
        self.started = min(self.started, self.archived.restored.started)
        self.tokens, self.cache = self.tokens or was.tokens, self.cache or was.cache
        self.size = self.size or was.size
        self.sent_total += was.tokens_sent_total
        self.returned_total += was.tokens_returned_total
        self.comparison = was.comparison.and_then(self.comparison)
        self.ceiling_cuts += was.ceiling_cuts
        self.spending = Spending(was.model_costs, was.unpriced_calls).and_then(self.spending)
        self.searches += was.history.searches
        self.searches_found += was.history.searches_found
        self.tool_calls += was.history.tool_calls
        self.usage.restore(was.usage)
        self.requests.restore(was.requests)

    @property
    def journal_key(self) -> str:
        """The name of the run on pages for people; neither its id nor its key can be derived from it."""
        return sha256(b"journal" + self.key).hexdigest()[:KEY_DIGITS]

    def summary(self, ahead: float) -> RunSummary:
        """Return the run's summary; needs no lock. `ahead`: seconds since the epoch less the clock of `started`."""
        tokens = self.tokens
        line = RunSummary(
            key=self.journal_key,
            caller=self.name[0],
            run_id=self.name[1],
            started=self.started + ahead,
            last_seen=self.last_seen + ahead,
            iteration=self.answered_iteration,
            before=tokens.before if tokens is not None else 0,
            after=tokens.after if tokens is not None else 0,
            limit=tokens.limit if tokens is not None else 0,
            ceiling=tokens.ceiling if tokens is not None else 0,
            ceiling_cuts=self.ceiling_cuts,
            protected_leaves=tokens.protected_leaves if tokens is not None else None,
            sent_total=self.sent_total,
            returned_total=self.returned_total,
            cost=self.used.cost if self.priced else None,
            missed=self.requests.figures().missed,
            spending=self.spending,
        )
        return self.journal.summary(line)

    def figures(self, ahead: float) -> RunFigures:
        """Return the run's figures; see `summary`.

        Until this process receives a prompt of the run, the figures of its prompts are another process's.
        """
        here = self._figures(ahead)
        was = self.archived.restored
        if was is None or len(self.memory.ledger):
            return here
        return replace(
            here,
            iteration=was.iteration,
            messages=was.messages,
            trimmed_items=was.trimmed_items,
            condensed_items=was.condensed_items,
            condensed_tokens=was.condensed_tokens,
            repeated=was.repeated,
            stash=here.stash if here.stash.entries else was.stash,
            history=replace(here.history, items=max(here.history.items, was.history.items)),
        )

    def _figures(self, ahead: float) -> RunFigures:
        recorded = self.history.figures()
        ledger = self.memory.ledger
        trims = self.memory.listed.trims
        condensed = [trim.tokens_saved for trim in trims if trim.action is Action.CONDENSED]
        return RunFigures(
            run_id=self.name[1],
            started=self.started + ahead,
            last_seen=self.last_seen + ahead,
            calls=self.calls,
            iteration=ledger.iteration if len(ledger) else 0,
            messages=len(ledger),
            tokens=self.tokens,
            cache=self.cache,
            tokens_sent_total=self.sent_total,
            tokens_returned_total=self.returned_total,
            trimmed_items=len(trims) - len(condensed),
            condensed_items=len(condensed),
            condensed_tokens=sum(condensed),
            stash=self._stash.figures(self.stash_key),
            history=HistoryFigures(
                items=recorded.items,
                passages=recorded.passages,
                index_bytes=recorded.index_bytes,
                waiting_bytes=self.history.waiting_bytes,
                first_iteration=recorded.first_iteration,
                searches=self.searches,
                searches_found=self.searches_found,
                tool_calls=self.tool_calls,
            ),
            unfinished_tasks=tuple(self.tasks.unfinished),
            size=self.size,
            repeated=self.memory.recorder.repeated.figures,
            usage=self.usage.figures(),
            cost=self.used.cost if self.priced else None,
            comparison=self.comparison,
            requests=self.requests.figures(),
            ceiling_cuts=self.ceiling_cuts,
            model_costs=self.spending.models,
            unpriced_calls=self.spending.unpriced,
        )
