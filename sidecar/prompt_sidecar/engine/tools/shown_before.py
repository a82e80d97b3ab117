"""What a model was shown by recall, so that a loop of retrieve, trim, retrieve ends.

Such a loop once ran for 24 minutes: recalled content was elided again, and requested again. So there are two counts:
how often the same range was shown, and, as a loop may ask for a slightly different range each time, how many bytes of
one content were shown in total, at most four times its size. Once either limit is reached, a request gets one short
sentence

- while the prompt still holds what is asked for, or most of it: the sentence says at which iteration, and what is not
  there;
- where pages of that size were trimmed as soon as they came, so that the model cannot have one: the sentence says that.

In any other case the content is no longer in the prompt and is shown again, however often it was requested: trimmed
content can always be fetched. A loop is not continued by that, as a page leaves the prompt only after much else was
added.

A retried call is not a repetition: its answer is kept for a while and given again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cachetools import LRUCache

from prompt_sidecar.facts.limits import RecallLimits
from prompt_sidecar.facts.recall_calls import InPrompt
from prompt_sidecar.facts.tool_calls import ToolAnswer
from prompt_sidecar.recall.selection import Selection

MOST_TIMES_OVER: Final = 4
"""Most bytes of a content that are shown in total, as a multiple of its size: once to page through it, and as often
again as the same range may be repeated."""
RANGES: Final = 1_024
"""Most recently requested ranges that are remembered: a loop repeats a few. About 200 KB if all differ."""
CONTENTS: Final = 16_384
"""Contents, the last shown ones, whose shown bytes are remembered: more than a run recalls. About 3 MB."""
CALLS: Final = 64
"""Calls whose answers are kept: a retry is sent within seconds, and no agent makes so many calls in that time."""
CALLS_BYTES: Final = 131_072
"""Bytes of answers kept, apart from the last: four full pages or many short answers. A page is held twice, as text and
as facts; a thousand runs then keep at most 128 MB."""

PAGES: Final = 1_024
"""Most recently shown pages that are remembered: a prompt with more takes millions of tokens. About 400 KB."""
STRETCHES: Final = 64
"""Stretches of a page that are remembered; a page has more where many lines match a pattern."""

_RANGE_BYTES: Final = 200
_PAGE_BYTES: Final = 400
_CONTENT_BYTES: Final = 215
_CALL_BYTES: Final = 1_000
"""Bytes of a range, a content and an answer in addition to their texts."""

Range = tuple[str, Selection, int]
"""A stash id, the selection that was requested, and the offset."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page that was shown."""

    asked: Range
    tag: str
    """The tag by which a prompt shows that it holds the page."""
    size: int
    """Bytes of the original in it."""
    stretches: tuple[tuple[int, int], ...]
    """The stretches of the page, each from a byte to before another."""
    prompts: int
    """Number of the run's prompts before it was shown."""

    def stands_at(self, now: InPrompt) -> int:
        """Return the iteration at which the prompt holds it, or will hold it; 0 if it does not."""
        return now.iteration if now.prompts == self.prompts else now.pages.get(self.tag, 0)


@dataclass(slots=True)
class _ShownContent:
    """What was shown of one content."""

    shown: int
    total: int


class _Remembered(LRUCache[_Key, _Value]):
    """The newest entries of a table; `forgot` is called when the oldest is evicted for a new one."""

    def __init__(self, maxsize: int, forgot: Callable[[], None]) -> None:
        super().__init__(maxsize)
        self._forgot = forgot

    def popitem(self) -> tuple[_Key, _Value]:
        """Evict the oldest entry."""
        item = super().popitem()
        self._forgot()
        return item


class ShownBefore:
    """What one run's model was shown by recall. Not thread-safe: a run's tool calls run one after another.

    Each method takes constant time.
    """

    def __init__(self, limits: RecallLimits, reached: Callable[[str], None] = lambda _: None) -> None:
        """`reached` is called with the name of a limit when an entry is evicted for it."""
        self.limits = limits
        self._reached = reached
        self._ranges: LRUCache[Range, int] = _Remembered(RANGES, lambda: reached("recall.ranges"))
        self._contents: LRUCache[str, _ShownContent] = _Remembered(CONTENTS, lambda: reached("recall.contents"))
        self._pages: OrderedDict[int, ShownPage] = OrderedDict()
        """The last shown pages, by an increasing number."""
        self._of_content: dict[str, deque[int]] = {}
        """Their numbers, by stash id."""
        self._number = 0
        self._calls: OrderedDict[str, ToolAnswer] = OrderedDict()
        self._calls_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes kept, estimated."""
        kept = _RANGE_BYTES * len(self._ranges) + _CONTENT_BYTES * len(self._contents)
        return kept + _PAGE_BYTES * len(self._pages) + self._calls_bytes + _CALL_BYTES * len(self._calls)

    def times(self, asked: Range) -> int:
        """Return how often this range was shown."""
        return self._ranges.get(asked, 0)

    def had(self, asked: Range) -> bool:
        """Whether this range was shown as often as allowed."""
        return self.times(asked) >= self.limits.repeats

    def spent(self, stash_id: str) -> bool:
        """Whether as much of this content was shown as allowed, in whatever ranges."""
        content = self._contents.get(stash_id)
        return content is not None and 0 < content.shown >= MOST_TIMES_OVER * content.total

    def pages(self, stash_id: str) -> Sequence[ShownPage]:
        """Return the pages of a content that were shown, the newest last."""
        return [self._pages[number] for number in self._of_content.get(stash_id, ())]

    def show(self, asked: Range, shown: int, total: int, page: ShownPage | None = None) -> None:
        """Record that the range is shown now: `shown` bytes of a content of `total` bytes."""
        stash_id = asked[0]
        if page is not None:
            self._keep_page(page)
        self._ranges[asked] = self.times(asked) + 1
        before = self._contents.get(stash_id)
        self._contents[stash_id] = _ShownContent((before.shown if before else 0) + shown, total)

    def _keep_page(self, page: ShownPage) -> None:
        self._number += 1
        self._pages[self._number] = page
        self._of_content.setdefault(page.asked[0], deque()).append(self._number)
        if len(self._pages) > PAGES:
            _, oldest = self._pages.popitem(last=False)
            of_oldest = self._of_content[oldest.asked[0]]
            of_oldest.popleft()
            if not of_oldest:
                del self._of_content[oldest.asked[0]]
            self._reached("recall.pages")

    def answered(self, request_id: str) -> ToolAnswer | None:
        """Return the answer to an earlier call with that request id; None for an empty id, or if it is not kept."""
        return self._calls.get(request_id)

    def keep(self, request_id: str, answer: ToolAnswer) -> None:
        """Keep a call's answer for a retry."""
        if not request_id:
            return
        self._calls[request_id] = answer
        self._calls_bytes += _size(answer)
        while len(self._calls) > CALLS or (self._calls_bytes > CALLS_BYTES and len(self._calls) > 1):
            self._calls_bytes -= _size(self._calls.popitem(last=False)[1])
            self._reached("recall.answers")


def _size(answer: ToolAnswer) -> int:
    recalled = len(answer.recalled.page.content) if answer.recalled else 0
    found = len(answer.found.rendered) + sum(len(each.text) for each in answer.found.snippets) if answer.found else 0
    return len(answer.content) + recalled + found
