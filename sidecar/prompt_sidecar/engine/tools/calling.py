"""The tools that a model is given, and the call that runs the chosen one.

A model's mistake is answered so that it can act on it, and is never an error: a malformed call says which argument,
what was wrong and what is accepted, with an example. Every answer is limited in size, begins with a line that the
sidecar recognises later, and quotes what tools wrote inside fences. A recalled page, including everything around it,
stays within a page's tokens, so it is cut a second time if many short stretches, each with its fence, take more than
estimated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, Protocol

from prompt_sidecar.engine.tools import tool_arguments as arguments
from prompt_sidecar.engine.tools.definitions import TOOLS
from prompt_sidecar.engine.tools.page_cutting import places_to_cut, start_of
from prompt_sidecar.engine.tools.shown_before import STRETCHES, Range, ShownBefore, ShownPage
from prompt_sidecar.engine.tools.tasks import lines
from prompt_sidecar.errors import InvalidRequest, RunUnknown
from prompt_sidecar.facts.recall_calls import InPrompt, RetrieveAnswer
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, Tasks, TaskStatus
from prompt_sidecar.facts.tool_calls import (
    CREATE_TASKS,
    RECALL,
    SEARCH,
    UPDATE_TASK,
    ToolAnswer,
    ToolCall,
    ToolOutcome,
)
from prompt_sidecar.prompt.items import REASONING_TYPE
from prompt_sidecar.recall.envelope import HEAD_TOKENS, QUOTE_TOKENS, render_page
from prompt_sidecar.recall.found import SearchLimits, SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.outcome import Outcome, describe, describe_page
from prompt_sidecar.recall.retrieve import MIN_PAGE_TOKENS
from prompt_sidecar.recall.search import LEAST_TOTAL_TOKENS
from prompt_sidecar.recall.selection import Page, PatternMatch, Selection
from prompt_sidecar.recall.tag import AnswerKind, tag_of

AROUND_TOKENS: Final = 100 + HEAD_TOKENS + QUOTE_TOKENS
"""Tokens kept free for the text around a page of one stretch: its fence, and a label of about 70, at most 100. If so
few are configured that less than `MIN_PAGE_TOKENS` would be left, an answer may take more."""
FOUND_TOKENS: Final = 40
"""Tokens kept free for the line that begins a search's answer; it takes about 25. The rest is for the search, which
needs `LEAST_TOTAL_TOKENS`: if fewer than both together are configured, an answer may take both together."""

_ENCRYPTED: Final = (
    "The id is of reasoning as its provider signed or encrypted it, which cannot be shown; asking again will not help. "
    "Search finds what of it can be read."
)
_MOSTLY: Final = 2
"""Divisor: a page is not shown whole again if at most this part of it is missing from the prompt."""
_TOO_LARGE: Final = (
    "this range was shown before and trimmed as soon as it was in the prompt, as it is too large for it; "
    "a shorter range can be shown"
)
_WORDS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    RECALL: (
        ("pattern.expression", "pattern"),
        ("lines.first", "first_line"),
        ("lines.last", "last_line"),
        ("next_offset of the page before with the same selection", "what the page before stated, all else the same"),
    ),
    SEARCH: (("max_snippets", "max_results"),),
    CREATE_TASKS: (("items", "tasks"),),
    UPDATE_TASK: (),
}
"""The core's names of what tools' arguments call otherwise."""


class ToolBackend(Protocol):
    """One run, as its tools use it. Every method may raise RunUnknown if this process has not seen the run."""

    @property
    def search_limits(self) -> SearchLimits:
        """The configured limits of a search."""
        ...

    def retrieve(self, stash_id: str, selection: Selection, offset: int, page_tokens: int) -> RetrieveAnswer:
        """Return a page of an original, of at most `page_tokens`. Raises InvalidRequest for a bad pattern or range."""
        ...

    def in_prompt(self, stash_id: str, tags: Sequence[str]) -> InPrompt:
        """Return what the last returned prompt holds of an original, and of answers with these tags."""
        ...

    def search(self, query: SearchQuery) -> SearchResult:
        """Search the run's history. Raises InvalidRequest for a query that is refused."""
        ...

    def create_tasks(self, call: CreateTasksCall) -> Sequence[TaskItem]:
        """Create tasks and return all tasks. Raises InvalidRequest."""
        ...

    def update_task(self, id: int, status: TaskStatus, request_id: str) -> Sequence[TaskItem]:
        """Update a task and return all tasks. Raises InvalidRequest."""
        ...

    def answer(self, kind: AnswerKind, stash_id: str, headline: str, body: str) -> str:
        """Return the text of an answer, with the line that the run recognises later."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        ...

    def nonce(self) -> str:
        """Return a few random letters or digits."""
        ...


def call_tool(call: ToolCall, backend: ToolBackend, shown_before: ShownBefore) -> ToolAnswer:
    """Run the tool that a model chose. A retry, by its request id, gets the earlier answer.

    Raises what the backend raises, such as DeadlinePassed, except InvalidRequest and RunUnknown.
    """
    kept = shown_before.answered(call.request_id)
    if kept is not None:
        return kept
    answer = _Tools(call, backend, shown_before).answer()
    if answer.outcome in (ToolOutcome.OK, ToolOutcome.REPEATED):
        shown_before.keep(call.request_id, answer)  # any other answer is made again, as it might be another one by then
    return answer


class _Tools:
    """One call."""

    def __init__(self, call: ToolCall, backend: ToolBackend, shown_before: ShownBefore) -> None:
        self.call = call
        self.backend = backend
        self.shown_before = shown_before

    def answer(self) -> ToolAnswer:
        tools = {
            RECALL: self.recall,
            SEARCH: self.search,
            CREATE_TASKS: self.create_tasks,
            UPDATE_TASK: self.update_task,
        }
        run = tools.get(self.call.name)
        if run is None:
            return self.notice(ToolOutcome.UNKNOWN_TOOL, f"there is no tool of that name; there are {', '.join(TOOLS)}")
        try:
            return run(arguments.members(self.call.arguments))
        except arguments.BadArgument as error:
            return self.wrong(str(error))
        except InvalidRequest as error:
            return replace(self.wrong(_in_words_of_the_tool(self.call.name, error)), bound=error.bound)
        except RunUnknown:
            return self.run_unknown()

    def recall(self, members: arguments.Members) -> ToolAnswer:
        asked = arguments.asked(members)
        stash_id, selection, offset = asked
        had = self.shown_before.had(asked)
        often = had or self.shown_before.spent(stash_id)
        pages = self.shown_before.pages(stash_id)
        now = self.backend.in_prompt(stash_id, [page.tag for page in pages])
        if had and (
            at := now.original or max((each.stands_at(now) for each in pages if each.asked == asked), default=0)
        ):
            times = _times(self.shown_before.times(asked))
            return self.notice(ToolOutcome.REPEATED, f"this range was shown {times} before and {_there(at)}")
        most = self.shown_before.limits.page_tokens
        found = self.backend.retrieve(stash_id, selection, offset, max(most - AROUND_TOKENS, MIN_PAGE_TOKENS))
        if found.outcome is Outcome.RUN_UNKNOWN:
            return self.run_unknown()
        if found.outcome is not Outcome.HIT:
            return replace(self.notice(ToolOutcome.OK, found.message), recalled=found)
        if found.page.content_type == REASONING_TYPE:
            return replace(self.notice(ToolOutcome.OK, _ENCRYPTED), recalled=found)
        answer = self.within(asked, found, most)
        assert answer.recalled is not None
        shown = answer.recalled.page
        if often and (holding := _held(shown, pages, now)):
            return self.notice(ToolOutcome.REPEATED, f"all of this content was shown several times over and {holding}")
        if often and len(shown.content) >= min((each.size for each in pages if each.tag in now.cut), default=inf):
            return self.notice(ToolOutcome.REPEATED, _TOO_LARGE)
        stretches = tuple((each.start_byte, each.end_byte) for each in shown.stretches[: STRETCHES + 1])
        if len(stretches) > STRETCHES:
            stretches = ()
        kept = ShownPage(asked, tag_of(answer.content), len(shown.content), stretches, now.prompts)
        self.shown_before.show(asked, len(shown.content), shown.total_bytes, kept)
        return answer

    def within(self, asked: Range, found: RetrieveAnswer, most: int) -> ToolAnswer:
        """Return the answer with a page, or as much of its start as keeps the whole answer within `most` tokens."""
        answer = self.shown(asked, found)
        if answer.content_tokens <= most:
            return answer
        sizes = places_to_cut(found.page)
        if not sizes:
            return answer

        def tokens(size: int) -> int:
            return self.cut(asked, found, size).content_tokens

        fit = bisect_right(sizes, most, key=tokens)
        return self.cut(asked, found, sizes[max(fit, 1) - 1])

    def cut(self, asked: Range, found: RetrieveAnswer, size: int) -> ToolAnswer:
        """Return the answer with the first `size` bytes of a page."""
        shown, next_offset = start_of(found.page, size)
        content = found.page.content[:size]
        page = replace(
            found.page,
            content=content,
            stretches=shown,
            more=True,
            next_offset=next_offset,
            content_tokens=self.backend.count(content.decode(errors="replace")),
        )
        message = describe_page(page, searched=isinstance(asked[1], PatternMatch))
        return self.shown(asked, replace(found, page=page, message=message))

    def shown(self, asked: Range, found: RetrieveAnswer) -> ToolAnswer:
        """Return the answer with a page."""
        before, page = self.shown_before.times(asked), found.page
        headline = _plain(found.message) + (f"; shown {_times(before)} before" if before else "")
        body = render_page(page.content, page.content_type, page.stretches, nonce=self.backend.nonce)
        text = self.backend.answer(AnswerKind.RECALLED, asked[0], headline, body)
        return ToolAnswer(ToolOutcome.OK, text, self.backend.count(text), recalled=found)

    def search(self, members: arguments.Members) -> ToolAnswer:
        limits = self.backend.search_limits
        room = max(limits.total_tokens - FOUND_TOKENS, LEAST_TOTAL_TOKENS)
        found = self.backend.search(arguments.query(members, limits, room))
        if found.outcome is SearchOutcome.RUN_UNKNOWN:
            return self.run_unknown()
        shown = len(found.snippets)
        headline = f"{shown} of {found.matching_items:,} matching items" if shown else _plain(found.message)
        text = self.backend.answer(AnswerKind.FOUND, "", headline, found.rendered if shown else "")
        return ToolAnswer(ToolOutcome.OK, text, self.backend.count(text), found=found)

    def create_tasks(self, members: arguments.Members) -> ToolAnswer:
        call = self.call
        items, append, statuses = arguments.new_tasks(members)
        new = CreateTasksCall(call.caller, call.run_id, items, append, call.request_id, statuses)
        return self.tasks(self.backend.create_tasks(new))

    def update_task(self, members: arguments.Members) -> ToolAnswer:
        number, status = arguments.new_status(members)
        return self.tasks(self.backend.update_task(number, status, self.call.request_id))

    def tasks(self, tasks: Sequence[TaskItem]) -> ToolAnswer:
        left = sum(task.status is not TaskStatus.COMPLETED for task in tasks)
        headline = f"{len(tasks)} tasks, {left} not completed"
        text = self.backend.answer(AnswerKind.TASKS, "", headline, lines(tasks))
        return ToolAnswer(ToolOutcome.OK, text, self.backend.count(text), tasks=Tasks(tuple(tasks)))

    def wrong(self, message: str) -> ToolAnswer:
        name = self.call.name
        return self.notice(ToolOutcome.INVALID_ARGUMENTS, message, f"Example: {name}({TOOLS[name].example})")

    def run_unknown(self) -> ToolAnswer:
        return self.notice(ToolOutcome.RUN_UNKNOWN, describe(Outcome.RUN_UNKNOWN))

    def notice(self, outcome: ToolOutcome, message: str, body: str = "") -> ToolAnswer:
        text = self.backend.answer(AnswerKind.NOTICE, "", _plain(message), body)
        return ToolAnswer(outcome, text, self.backend.count(text))


def _in_words_of_the_tool(name: str, error: InvalidRequest) -> str:
    """Return the core's error about a request, with the names of the tool's arguments."""
    message, field = error.message, error.field
    for theirs, ours in _WORDS[name]:
        message, field = message.replace(theirs, ours), field.replace(theirs, ours)
    return message if not field or field in message else f"{field}: {message}"


def _there(at: int) -> str:
    """Return the end of a sentence about what the prompt holds at an iteration."""
    return f"is in the prompt, at iteration {at}; it is not shown again while it is there"


def _held(page: Page, pages: Sequence[ShownPage], now: InPrompt) -> str:
    """Return the end of a sentence on where the prompt holds most of a page; empty if it does not."""
    if now.original:
        return _there(now.original)
    there = [(each, at) for each in pages if (at := each.stands_at(now))]
    if not there:
        return ""
    covered = _joined(stretch for each, _ in there for stretch in each.stretches)
    missing: list[tuple[int, int]] = []
    """Ranges of the page's content."""
    begin = 0
    for each in page.stretches:
        size = each.end_byte - each.start_byte
        gaps = _gaps(covered, each.start_byte, each.end_byte)
        missing += [(begin + first - each.start_byte, begin + last - each.start_byte) for first, last in gaps]
        begin += size
    lacks = sum(last - first for first, last in missing)
    newest = max(at for _, at in there)
    if not lacks:
        return _there(newest)
    if lacks * _MOSTLY > len(page.content):
        return ""
    lines = [_line_of(page, at) for at in (missing[0][0], missing[-1][1] - 1)]
    there_is = f"most of this range is in the prompt, at iteration {newest}"
    return f"{there_is}; lines {lines[0]}-{lines[1]} can be asked for alone"


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, with touching ones joined."""
    made: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


def _gaps(covered: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are not in `covered`, which is in order."""
    for first, last in covered[max(bisect_right(covered, (start, end)) - 1, 0) :]:
        if first >= end:
            break
        if start < first:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


def _line_of(page: Page, at: int) -> int:
    """Return the line of the original that a byte of a page's content is in."""
    for each in page.stretches:
        size = each.end_byte - each.start_byte
        if at < size:
            begin = sum(one.end_byte - one.start_byte for one in page.stretches[: page.stretches.index(each)])
            return each.first_line + page.content.count(b"\n", begin, begin + at)
        at -= size
    return page.total_lines


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _plain(sentence: str) -> str:
    """Return a sentence for a label: without its full stop."""
    return sentence.removesuffix(".")
