"""Recall: trimmed content is returned again, by id or by search, to programs or to the model's own tools.

Recall of a run whose prompt this process has not seen is RUN_UNKNOWN, never NOT_FOUND: another process may have the
run, or this one had it before a restart; once the prompt is sent again, the same request can be repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Final

from prompt_sidecar.engine.runs.archiving import Archiving
from prompt_sidecar.engine.runs.guarding import Guarding
from prompt_sidecar.engine.runs.pace import Lane, Pace, never
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.table import UNKNOWN_RUN, RunTable
from prompt_sidecar.engine.tools.calling import call_tool
from prompt_sidecar.errors import RunUnknown, SidecarError
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.recall_calls import InPrompt, RetrieveAnswer, RetrieveCall, SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, Tasks, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import CREATE_TASKS, RECALL, SEARCH, ToolAnswer, ToolCall
from prompt_sidecar.recall.found import SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.outcome import Outcome, describe, describe_page
from prompt_sidecar.recall.retrieve import select
from prompt_sidecar.recall.search import search
from prompt_sidecar.recall.selection import PatternMatch, Selection
from prompt_sidecar.recall.tag import AnswerKind, tagged
from prompt_sidecar.tokens import Counter

INDEX_SECONDS: Final = 0.5
"""Seconds that a search indexes at most before it searches what is indexed: one to three MB, so that only the first
searches of a large run that this process has taken over, or whose index it gave up, leave something out."""
INDEX_SHARE: Final = 4
"""Divisor of the time that a search's caller still waits; the quotient bounds what it indexes too. The rest is for what
goes in steps that cannot end in between: reading the facts of a run that was taken over, ranking, and its turns."""
NONCE_DIGITS: Final = 6
"""Digits of a fence's nonce: two tokens. The author of quoted text cannot know it, as it is drawn later."""
PAGE_ENCODING: Final = "o200k_base"
"""The encoding that counts recall's answers, as such a call names no model."""


def nonce() -> str:
    """Return the random part of a fence."""
    return f"{secrets.randbelow(10**NONCE_DIGITS):0{NONCE_DIGITS}}"


RETRIEVE: Final = "RetrieveContent"
"""How a program's retrieval appears in journals; a model's appears under its tool."""
SEARCH_METHOD: Final = "SearchHistory"


class Recalling:
    """The use cases of recall and of tasks, on a table of runs."""

    def __init__(  # noqa: PLR0917 - the parts that it works with
        self,
        table: RunTable,
        counter: Counter,
        archiving: Archiving,
        guarding: Guarding,
        lane: Lane,
        limits: CoreLimits,
    ) -> None:
        """Take the components that it uses; `limits` bound the answers."""
        self._table = table
        self._counter = counter
        self._archiving = archiving
        self._guarding = guarding
        self._lane = lane
        self._page_tokens = limits.recall.page_tokens
        self.search_limits = limits.search

    def retrieve(
        self,
        call: RetrieveCall,
        check: Callable[[], None] = never,
        reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> RetrieveAnswer:
        """Fetch an original, or say why there is none.

        Args:
            call: which original, and which part of it.
            check: called between the steps of a search in it; what it raises ends the call.
            reserve: holds memory for the original while it is read.

        Raises:
            InvalidRequest: the selection, the offset or the page is wrong.
            TooLarge: there is no memory for the original now.
        """
        with Pace(check, self._lane, reserve) as pace:
            self._archiving.restore(call.caller, call.run_id, pace.holding)
            run = self._seen(call.caller, call.run_id)
            if run is None:
                return RetrieveAnswer(Outcome.RUN_UNKNOWN, describe(Outcome.RUN_UNKNOWN))
            return self.page(run, call.stash_id, call.selection, call.offset, call.page_tokens, check=pace, by=RETRIEVE)

    def page(
        self,
        run: Run,
        stash_id: str,
        selection: Selection,
        offset: int,
        page_tokens: int = 0,
        *,
        check: Pace,
        by: str = RECALL,
    ) -> RetrieveAnswer:
        """Return a page of an original of a run that was seen; `by`: the tool or method that asks."""
        stash = self._table.stash
        if run.other_keys:
            with check.holding(run.lock):
                stash_id = run.memory.id_now(stash_id)
        check()
        self._archiving.fetch(run, stash_id)
        with check.reserve(stash.size_of(run.stash_key, stash_id)):
            held = stash.get(run.stash_key, stash_id)
            if isinstance(held, Outcome):
                outcome = Outcome.NOT_FOUND if held is Outcome.RUN_UNKNOWN else held
                self._note(run, stash_id or "?", outcome, 0, by)
                return RetrieveAnswer(outcome, describe(outcome))
            page = select(
                held.original,
                held.content_type,
                selection,
                offset,
                page_tokens or self._page_tokens,
                self.count,
                check,
                check.holding,
            )
        self._note(run, stash_id, Outcome.HIT, page.content_tokens, by)
        item = run.history.item(stash_id)  # not from the ledger: a prompt may hold the run's lock for long
        message = describe_page(page, searched=isinstance(selection, PatternMatch))
        return RetrieveAnswer(Outcome.HIT, message, page, item.tool if item is not None else "")

    def _note(self, run: Run, stash_id: str, outcome: Outcome, tokens: int, by: str) -> None:
        """Record a recall in the run's journal."""
        run.journal.recalled(stash_id, outcome, tokens, run.last_seen, by)
        if run.journal.kept_bytes:
            self._table.weigh(run)

    def search(self, call: SearchCall, check: Callable[[], None]) -> SearchResult:
        """Search a run's history. Items that wait to be indexed are indexed first, for a part of the caller's time.

        `check` is called in between. The answer says what was not indexed; that is indexed between calls.

        Raises:
            InvalidRequest: the query or a limit in it is wrong.
        """
        with Pace(check, self._lane, seconds=call.seconds) as pace:
            self._archiving.restore(call.caller, call.run_id, pace.holding)
            run = self._seen(call.caller, call.run_id)
            if run is None:
                return SearchResult(SearchOutcome.RUN_UNKNOWN, describe(Outcome.RUN_UNKNOWN))
            return self.find(run, pace, call.query, SEARCH_METHOD)

    def find(self, run: Run, check: Pace, query: SearchQuery, by: str = SEARCH) -> SearchResult:
        """Search the history of a run that was seen; `by`: the tool or method that asks."""
        began = perf_counter()
        enough = check.spent(INDEX_SHARE, INDEX_SECONDS)
        try:
            return replace(self._found(run, check, query, enough, by), seconds=perf_counter() - began)
        finally:
            self._table.index_later(run)  # also if the call ended early

    def _found(self, run: Run, check: Pace, query: SearchQuery, enough: Callable[[], bool], by: str) -> SearchResult:
        self._archiving.load(run, check)
        with check.holding(run.lock):
            visible = frozenset(run.memory.whole)
            left = run.archived.restored  # of a run that has sent no prompt to this process yet
            last_iteration = max(run.memory.ledger.iteration, left.iteration if left is not None else 0, 1)
        found = search(
            run.history,
            query,
            self.search_limits,
            last_iteration=last_iteration,
            count=self.count,
            nonce=nonce,
            check=check,
            enough=enough,
            visible=visible,
        )
        run.journal.recalled("", found.outcome, found.rendered_tokens, run.last_seen, by)
        self._table.weigh(run)
        with check.holding(run.lock):
            run.searches += 1
            run.searches_found += found.outcome is SearchOutcome.FOUND
        return found

    # -- tasks -------------------------------------------------------------------------------------------------------

    def create_tasks(self, call: CreateTasksCall, check: Callable[[], None] = never) -> Tasks:
        """Create tasks and return all tasks of the run. A run that has not been seen begins.

        Raises:
            InvalidRequest: a task is empty or too long, or there are too many;
            GuardRefused: a task holds what a rule of the guard refuses. In either case nothing has changed.
        """
        with Pace(check, self._lane) as pace:
            heard = self._archiving.restore(call.caller, call.run_id, pace.holding, tasks=True, begins=True)
            with self._table.entered(call.caller, call.run_id, pace.holding) as run:
                tasks = self.write_tasks(run, call, apart=not heard)
                if run.registered or not run.unused:
                    self._table.keep(run)
                self._archiving.changed(run, tasks=True)
            self._archiving.settle(run)
            return self._listed(run, tasks, heard=heard)

    def _listed(self, run: Run, tasks: Sequence[TaskItem], *, heard: bool) -> Tasks:
        """Return tasks as an answer; `heard`: whether the archive has answered with others' changes.

        No lock is held.
        """
        shared = self._archiving.shares_tasks(run)
        return Tasks(tuple(tasks), not_shared=not (heard and shared))

    def write_tasks(self, run: Run, call: CreateTasksCall, *, apart: bool) -> Sequence[TaskItem]:
        """Replace a run's tasks by masked ones, or append these; see `TaskList.create`, also for its errors.

        The run's lock is held.
        """
        asked = call.items, call.append, call.request_id, call.statuses
        masker = self._guarding.masker(run, run.name[0])
        if masker is None or not masker.masks:
            return run.tasks.create(*asked, apart=apart)
        try:
            return run.tasks.create(*asked, mask=masker.mask_task, apart=apart)
        except SidecarError:
            masker.take_back()
            raise

    def update_task(self, call: UpdateTaskCall, check: Callable[[], None] = never) -> Tasks:
        """Set a task's status and return all tasks.

        Raises:
            InvalidRequest: there is no such task.
            RunUnknown: this process has not seen the run.
        """
        with Pace(check, self._lane) as pace:
            heard = self._archiving.restore(call.caller, call.run_id, pace.holding, tasks=True)
            with self._table.seen(call.caller, call.run_id, pace.holding) as run:
                tasks = run.tasks.update(call.id, call.status, request_id=call.request_id)
                self._archiving.changed(run, tasks=True)
            self._archiving.settle(run)
            return self._listed(run, tasks, heard=heard)

    def list_tasks(self, caller: str, run_id: str, check: Callable[[], None] = never) -> Tasks:
        """Return all tasks of a run. Raises RunUnknown."""
        with Pace(check, self._lane) as pace:
            heard = self._archiving.restore(caller, run_id, pace.holding, tasks=True)
            with self._table.seen(caller, run_id, pace.holding) as run:
                tasks = run.tasks.items
            return self._listed(run, tasks, heard=heard)

    # -- the model's tools -------------------------------------------------------------------------------------------

    def call_tool(
        self,
        call: ToolCall,
        check: Callable[[], None],
        reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> ToolAnswer:
        """Run one of the model's tools; see `retrieve` on `check` and `reserve`.

        A mistake of the model is answered, never raised. If the run is ended meanwhile, the call is repeated in a new
        run.
        """
        begins = call.name == CREATE_TASKS
        with Pace(check, self._lane, reserve, call.seconds) as pace:
            heard = self._archiving.restore(call.caller, call.run_id, pace.holding, tasks=True, begins=begins)
            while True:
                run = self._table.begun(call.caller, call.run_id)
                try:
                    answer = self._tool_answer(run, call, pace, heard=heard)
                except _RunEnded:
                    continue
                finally:
                    self._table.leave(run)
                self._table.weigh(run)
                self._archiving.settle(run)
                if answer.tasks is None:
                    return answer
                return replace(answer, tasks=self._listed(run, answer.tasks.items, heard=heard))

    def _tool_answer(self, run: Run, call: ToolCall, pace: Pace, *, heard: bool) -> ToolAnswer:
        with pace.holding(run.tools_lock):
            answer = call_tool(call, _Backend(self, run, pace, heard=heard), run.shown_before)
            run.tool_calls += 1
        with pace.holding(run.lock):
            if run.tasks.items and not run.registered and not run.ended:
                self._table.keep(run)  # a run may begin with its tasks
            if answer.tasks is not None and not run.ended:
                self._archiving.changed(run, tasks=True)
        return answer

    def _seen(self, caller: str, run_id: str) -> Run | None:
        """Return a run that has sent a prompt to this process, or None."""
        run = self._table.known(caller, run_id)
        return run if run is not None and run.calls else None

    def count(self, text: str) -> int:
        """Return the tokens of a text in recall's answers."""
        return self._counter.count(text, PAGE_ENCODING)


class _RunEnded(Exception):
    """The run was ended while one of its tool calls waited for its lock."""


class _Backend:
    """One run, as the model's tools use it. See `prompt_sidecar.engine.tools.calling.ToolBackend`."""

    def __init__(self, recalling: Recalling, run: Run, check: Pace, *, heard: bool) -> None:
        self._recalling = recalling
        self._heard = heard
        self._run = run
        self._check = check
        self.search_limits = recalling.search_limits
        self.count = recalling.count

    def retrieve(self, stash_id: str, selection: Selection, offset: int, page_tokens: int) -> RetrieveAnswer:
        self._must_be_seen()
        return self._recalling.page(self._run, stash_id, selection, offset, page_tokens, check=self._check)

    def nonce(self) -> str:
        return nonce()

    def in_prompt(self, stash_id: str, tags: Sequence[str]) -> InPrompt:
        self._must_be_seen()
        with self._check.holding(self._run.lock):
            if self._run.other_keys:
                stash_id = self._run.memory.id_now(stash_id)
            return self._run.memory.in_prompt(stash_id, tags, self._run.calls)

    def search(self, query: SearchQuery) -> SearchResult:
        self._must_be_seen()
        return self._recalling.find(self._run, self._check, query)

    def create_tasks(self, call: CreateTasksCall) -> Sequence[TaskItem]:
        with self._entered():
            return self._recalling.write_tasks(self._run, call, apart=not self._heard)

    def update_task(self, id: int, status: TaskStatus, request_id: str) -> Sequence[TaskItem]:
        with self._entered():
            return self._run.tasks.update(id, status, request_id=request_id)

    def answer(self, kind: AnswerKind, stash_id: str, headline: str, body: str) -> str:
        return tagged(self._run.key, kind, stash_id, headline, body)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._check.holding(self._run.lock):
            if self._run.ended:
                raise _RunEnded
            yield

    def _must_be_seen(self) -> None:
        if not self._run.calls:
            raise RunUnknown(UNKNOWN_RUN, field="run_id")
