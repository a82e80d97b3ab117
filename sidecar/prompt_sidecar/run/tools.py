"""The tools that a model is given, and the one call that runs whichever it chose.

What a model did wrong is an answer that it can act on, never an error: a malformed call says which argument, what was
wrong and what is accepted, with an example. Every answer is bounded, begins with the line that the sidecar writes and
recognises again, and quotes what tools wrote inside fences. A recalled page with all that is around it keeps within a
page's tokens, so it is cut a second time where many short stretches, each with its fence, take more than was reckoned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, Protocol

from prompt_sidecar.errors import InvalidRequest, RunUnknown
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import REASONING_TYPE
from prompt_sidecar.recall.envelope import HEAD_TOKENS, QUOTE_TOKENS, render_page
from prompt_sidecar.recall.found import Found, SearchLimits, SearchOutcome, SearchQuery
from prompt_sidecar.recall.outcome import Outcome, describe, describe_page
from prompt_sidecar.recall.retrieve import MIN_PAGE_TOKENS
from prompt_sidecar.recall.search import LEAST_TOTAL_TOKENS
from prompt_sidecar.recall.selection import Page, PatternMatch, Selection, Stretch
from prompt_sidecar.recall.tag import AnswerKind
from prompt_sidecar.run import tool_arguments as arguments
from prompt_sidecar.run.calls import RetrieveAnswer
from prompt_sidecar.run.recall_calls import TaskItem, TaskStatus, ToolAnswer, ToolCall, ToolDefinition, ToolOutcome
from prompt_sidecar.run.repeats import Range, Repeats
from prompt_sidecar.run.tasks import lines
from prompt_sidecar.run.tool_texts import CREATE_TASKS, RECALL, SEARCH, TOOLS, UPDATE_TASK

PLAIN: Final = "conversation"
"""The format whose definitions are plain ones."""

AROUND_TOKENS: Final = 100 + HEAD_TOKENS + QUOTE_TOKENS
"""Tokens kept free for what is around a page of one stretch: its fence, and a label of about 70, at most 100."""
LEAST_PAGE_TOKENS: Final = AROUND_TOKENS + MIN_PAGE_TOKENS
"""Tokens of a page that hold any text; where fewer are configured, an answer may take more than that."""
FOUND_TOKENS: Final = 40
"""Tokens kept free for the line that begins a search's answer; it takes about 25. The rest is search's, which needs
`LEAST_TOTAL_TOKENS`: where fewer are configured than both together, an answer may take that."""

_ENCRYPTED: Final = (
    "The id is of reasoning as its provider signed or encrypted it, which cannot be shown; asking again will not help. "
    "Search finds what of it can be read."
)
_NOT_AGAIN: Final = " and is not shown again; asking again will not help"
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
"""How the core names what a tool's arguments name otherwise."""


class Backend(Protocol):
    """One run, as its tools use it. Every method may raise RunUnknown where this process has not seen the run."""

    @property
    def search_limits(self) -> SearchLimits:
        """The configured bounds of a search."""
        ...

    def retrieve(self, stash_id: str, selection: Selection, offset: int, page_tokens: int) -> RetrieveAnswer:
        """A page of an original, of at most so many tokens. Raises InvalidRequest for a bad pattern or range."""
        ...

    def search(self, query: SearchQuery) -> Found:
        """What is found in the run's history. Raises InvalidRequest for a query that is refused."""
        ...

    def create_tasks(
        self, items: Sequence[str], append: bool, request_id: str, statuses: Sequence[TaskStatus]
    ) -> Sequence[TaskItem]:
        """All tasks after the change. Raises InvalidRequest."""
        ...

    def update_task(self, id: int, status: TaskStatus, request_id: str) -> Sequence[TaskItem]:
        """All tasks after the change. Raises InvalidRequest."""
        ...

    def answer(self, kind: AnswerKind, stash_id: str, headline: str, body: str) -> str:
        """The text of an answer, with the line that the run recognises again."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...

    def nonce(self) -> str:
        """A few random letters or digits."""
        ...


def definitions(format_name: str, names: Collection[str]) -> list[ToolDefinition]:
    """The tools as definitions in a format, in an order that never changes.

    Args:
        format_name: a name of `FORMATS`; empty: plain.
        names: those wanted; empty: all.

    Raises:
        InvalidRequest: there is no such format or tool.
    """
    form = FORMATS.get(format_name or PLAIN)
    if form is None:
        raise InvalidRequest(f"there is no such format; accepted: {', '.join(FORMATS)}", field="format")
    for index, name in enumerate(names):
        if name not in TOOLS:
            raise InvalidRequest(f"names[{index}] is no tool; accepted: {', '.join(TOOLS)}", field="names")
    return [
        ToolDefinition(
            name, text.description, text.parameters.decode(), form.tool(name, text.description, text.parameters)
        )
        for name, text in TOOLS.items()
        if not names or name in names
    ]


def call_tool(call: ToolCall, backend: Backend, repeats: Repeats) -> ToolAnswer:
    """Run the tool that a model chose. A retry, by its request id, gets the answer that was given before.

    Raises only what the backend raises beside InvalidRequest and RunUnknown, such as DeadlinePassed.
    """
    kept = repeats.answered(call.request_id)
    if kept is not None:
        return kept
    answer = _Tools(call, backend, repeats).answer()
    if answer.outcome in (ToolOutcome.OK, ToolOutcome.REPEATED):
        repeats.keep(call.request_id, answer)  # any other answer is made again, or would be another one by then
    return answer


class _Tools:
    """One call."""

    def __init__(self, call: ToolCall, backend: Backend, repeats: Repeats) -> None:
        self.call = call
        self.backend = backend
        self.repeats = repeats

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
        if self.repeats.had(asked):
            times = _times(self.repeats.times(asked))
            return self.notice(ToolOutcome.REPEATED, f"this range was shown {times} before{_NOT_AGAIN}")
        if self.repeats.spent(asked[0]):
            return self.notice(ToolOutcome.REPEATED, f"all of this content was shown several times over{_NOT_AGAIN}")
        most = self.repeats.limits.page_tokens
        stash_id, selection, offset = asked
        page = self.backend.retrieve(stash_id, selection, offset, max(most - AROUND_TOKENS, MIN_PAGE_TOKENS))
        if page.outcome is Outcome.RUN_UNKNOWN:
            return self.run_unknown()
        if page.outcome is not Outcome.HIT:
            return replace(self.notice(ToolOutcome.OK, page.message), recalled=page)
        if page.content_type == REASONING_TYPE:
            return replace(self.notice(ToolOutcome.OK, _ENCRYPTED), recalled=page)
        answer = self.within(asked, page, most)
        assert answer.recalled is not None
        self.repeats.show(asked, len(answer.recalled.content), page.total_bytes)
        return answer

    def within(self, asked: Range, page: RetrieveAnswer, most: int) -> ToolAnswer:
        """The answer that shows a page, or as much of its start as keeps the whole answer within `most` tokens."""
        answer = self.shown(asked, page)
        if answer.content_tokens <= most:
            return answer
        sizes = _places_to_cut(page)
        if not sizes:
            return answer

        def tokens(size: int) -> int:
            return self.cut(asked, page, size).content_tokens

        fit = bisect_right(sizes, most, key=tokens)
        return self.cut(asked, page, sizes[max(fit, 1) - 1])

    def cut(self, asked: Range, page: RetrieveAnswer, size: int) -> ToolAnswer:
        """The answer that shows the first `size` bytes of a page."""
        shown, next_offset = _first(page, size)
        content = page.content[:size]
        page = replace(
            page,
            content=content,
            stretches=shown,
            more=True,
            next_offset=next_offset,
            content_tokens=self.backend.count(content.decode(errors="replace")),
        )
        searched = isinstance(asked[1], PatternMatch)
        return self.shown(asked, replace(page, message=describe_page(_as_page(page), searched=searched)))

    def shown(self, asked: Range, page: RetrieveAnswer) -> ToolAnswer:
        """The answer that shows a page."""
        before = self.repeats.times(asked)
        headline = _plain(page.message) + (f"; shown {_times(before)} before" if before else "")
        body = render_page(page.content, page.content_type, page.stretches, nonce=self.backend.nonce)
        text = self.backend.answer(AnswerKind.RECALLED, asked[0], headline, body)
        return ToolAnswer(ToolOutcome.OK, text, self.backend.count(text), recalled=page)

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
        new = arguments.new_tasks(members)
        return self.tasks(self.backend.create_tasks(new.items, new.append, self.call.request_id, new.statuses))

    def update_task(self, members: arguments.Members) -> ToolAnswer:
        number, status = arguments.new_status(members)
        return self.tasks(self.backend.update_task(number, status, self.call.request_id))

    def tasks(self, tasks: Sequence[TaskItem]) -> ToolAnswer:
        left = sum(task.status is not TaskStatus.COMPLETED for task in tasks)
        headline = f"{len(tasks)} tasks, {left} not completed"
        text = self.backend.answer(AnswerKind.TASKS, "", headline, lines(tasks))
        return ToolAnswer(ToolOutcome.OK, text, self.backend.count(text), tasks=tasks)

    def wrong(self, message: str) -> ToolAnswer:
        name = self.call.name
        return self.notice(ToolOutcome.INVALID_ARGUMENTS, message, f"Example: {name}({TOOLS[name].example})")

    def run_unknown(self) -> ToolAnswer:
        return self.notice(ToolOutcome.RUN_UNKNOWN, describe(Outcome.RUN_UNKNOWN))

    def notice(self, outcome: ToolOutcome, message: str, body: str = "") -> ToolAnswer:
        text = self.backend.answer(AnswerKind.NOTICE, "", _plain(message), body)
        return ToolAnswer(outcome, text, self.backend.count(text))


def _in_words_of_the_tool(name: str, error: InvalidRequest) -> str:
    """What the core says of a request, with the names of the tool's arguments."""
    message, field = error.message, error.field
    for theirs, ours in _WORDS[name]:
        message, field = message.replace(theirs, ours), field.replace(theirs, ours)
    return message if not field or field in message else f"{field}: {message}"


def _places_to_cut(page: RetrieveAnswer) -> list[int]:
    """Bytes after which a page can end early, ascending: its stretches' ends, and within the first one some more."""
    ends = list(accumulate(stretch.end_byte - stretch.start_byte for stretch in page.stretches))
    sizes = set(ends[:-1])
    half = ends[0] if ends else 0
    while half > 1:
        half //= 2
        sizes.add(page.content.rfind(b"\n", half * 3 // 4, half) + 1 or _character_end(page.content, half))
    return sorted(size for size in sizes if size < len(page.content))


def _character_end(text: bytes, at: int) -> int:
    """`at`, or the byte after the UTF-8 character that it would split."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def _first(page: RetrieveAnswer, size: int) -> tuple[Sequence[Stretch], int]:
    """The stretches of a page's first `size` bytes, and the byte of the original that follows."""
    shown: list[Stretch] = []
    at = 0
    for stretch in page.stretches:
        if at == size:
            return shown, stretch.start_byte
        length = stretch.end_byte - stretch.start_byte
        if at + length > size:
            last_line = stretch.first_line + page.content.count(b"\n", at, size - 1)
            end = stretch.start_byte + size - at
            return [*shown, replace(stretch, end_byte=end, last_line=last_line)], end
        shown.append(stretch)
        at += length
    return shown, page.next_offset


def _as_page(page: RetrieveAnswer) -> Page:
    return Page(
        content=page.content,
        content_type=page.content_type,
        total_bytes=page.total_bytes,
        total_lines=page.total_lines,
        stretches=page.stretches,
        more=page.more,
        next_offset=page.next_offset,
        matching_lines=page.matching_lines,
        content_tokens=page.content_tokens,
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _plain(sentence: str) -> str:
    """A sentence as it stands in a label: without its full stop."""
    return sentence.removesuffix(".")
