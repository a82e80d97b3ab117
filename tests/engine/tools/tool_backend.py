"""One run as its tools use it, in a test: originals in a dict, real pages, envelopes, tags, tasks and token counts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from prompt_sidecar.engine.tools.calling import call_tool
from prompt_sidecar.engine.tools.shown_before import ShownBefore
from prompt_sidecar.engine.tools.tasks import TaskList
from prompt_sidecar.facts.limits import RecallLimits
from prompt_sidecar.facts.recall_calls import InPrompt, RetrieveAnswer
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, TaskStatus
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall
from prompt_sidecar.recall.found import SearchLimits, SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.history import History
from prompt_sidecar.recall.outcome import Outcome, describe, describe_page
from prompt_sidecar.recall.retrieve import select
from prompt_sidecar.recall.search import search
from prompt_sidecar.recall.selection import PatternMatch, Selection
from prompt_sidecar.recall.tag import AnswerKind, tagged
from prompt_sidecar.tokens import Counter, load

KEY = b"k" * 32
FIRST, SECOND = "ab3dq7ghjk", "mn4pq8rstv"
"""Two ids."""


@cache
def counter() -> Counter:
    """What counts, made once."""
    return Counter({"o200k_base": load("o200k_base")})


def count(text: str) -> int:
    """Tokens."""
    return counter().count(text, "o200k_base")


@dataclass(slots=True)
class OneRun:
    """A run's side of its tools."""

    originals: Mapping[str, bytes] = field(default_factory=dict)
    gone: Mapping[str, Outcome] = field(default_factory=dict)
    found: SearchResult = field(default_factory=lambda: SearchResult(SearchOutcome.NOTHING_FOUND, "Nothing matches."))
    error: Exception | None = None
    """What every method raises."""
    history: History | None = None
    """Searched in place of giving `found`."""
    search_limits: SearchLimits = field(default_factory=SearchLimits)
    limits: RecallLimits = field(default_factory=RecallLimits)
    tasks: TaskList = field(default_factory=TaskList)
    asked: list[Any] = field(default_factory=list)
    """What was asked of it: selections with offsets, and queries."""
    prompt: Callable[[str, Sequence[str]], InPrompt] = lambda *_: InPrompt(1, 7)
    """What the prompt holds of an original and of pages with these tags."""
    shown_before: ShownBefore = field(init=False)
    _nonces: itertools.count[int] = field(default_factory=lambda: itertools.count(100_000))

    def __post_init__(self) -> None:
        self.shown_before = ShownBefore(self.limits)

    def call(self, name: str, arguments: Any = "", request_id: str = "") -> ToolAnswer:
        """Call a tool; arguments that are no text are written as JSON."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return call_tool(ToolCall("caller", "run", name, text, request_id), self, self.shown_before)

    def retrieve(self, stash_id: str, selection: Selection, offset: int, page_tokens: int) -> RetrieveAnswer:
        """A page, as the run's memory gives it."""
        self._raise()
        self.asked.append((stash_id, selection, offset))
        if stash_id not in self.originals:
            outcome = self.gone.get(stash_id, Outcome.NOT_FOUND)
            return RetrieveAnswer(outcome, describe(outcome))
        page = select(self.originals[stash_id], "text/plain", selection, offset, page_tokens, count)
        message = describe_page(page, searched=isinstance(selection, PatternMatch))
        return RetrieveAnswer(Outcome.HIT, message, page)

    def in_prompt(self, stash_id: str, tags: Sequence[str]) -> InPrompt:
        """What the test says that the prompt holds; by default no prompt has come since the first call."""
        self._raise()
        return self.prompt(stash_id, tags)

    def search(self, query: SearchQuery) -> SearchResult:
        """What is found in the history, or what the test says is found."""
        self._raise()
        self.asked.append(query)
        if self.history is None:
            return self.found
        return search(
            self.history,
            query,
            self.search_limits,
            last_iteration=99,
            count=count,
            nonce=self.nonce,
            check=lambda: None,
        )

    def create_tasks(self, call: CreateTasksCall) -> Sequence[TaskItem]:
        """The run's tasks after the change."""
        self._raise()
        return self.tasks.create(call.items, call.append, call.request_id, call.statuses)

    def update_task(self, id: int, status: TaskStatus, request_id: str) -> Sequence[TaskItem]:
        """The run's tasks after the change."""
        self._raise()
        return self.tasks.update(id, status, request_id)

    def answer(self, kind: AnswerKind, stash_id: str, headline: str, body: str) -> str:
        """The answer under the run's key."""
        return tagged(KEY, kind, stash_id, headline, body)

    def count(self, text: str) -> int:
        """Tokens."""
        return count(text)

    def nonce(self) -> str:
        """Six digits, other ones each time."""
        return str(next(self._nonces))

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
