"""What a model was shown by recall, so that a loop of retrieve, trim, retrieve ends.

Such a loop once ran for 24 minutes: what was recalled was elided again, and asked for again. So there are two counts:
how often the same range was shown, and, as a loop may ask for a slightly different range each time, how many bytes of
one content were shown in all, which may be four times its own. Once either is reached, an ask costs one short sentence

- while the prompt still holds what is asked for, or most of it: the sentence says at which iteration, and what is not
  there;
- where pages of that size were trimmed as soon as they came, so that the model cannot have one: the sentence says that.

In any other case the model has it no more, and is shown it again, however often it has asked: what was taken from a
prompt can be fetched. A loop gets no further by that, as a page leaves the prompt only when so much else has come.

A call that is retried is no repetition: its answer is kept for a while and given again.
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
"""Times the bytes of a content that are shown of it, in all: once to page through it, and as often again as the same
range may be repeated."""
RANGES: Final = 1_024
"""Ranges remembered, those asked for last: a loop goes round in a few. About 200 KB if all differ."""
CONTENTS: Final = 16_384
"""Contents whose shown bytes are remembered, those shown last: more than a run recalls. About 3 MB."""
CALLS: Final = 64
"""Calls whose answers are kept: a retry comes within seconds, and no agent makes so many calls in them."""
CALLS_BYTES: Final = 131_072
"""Bytes of answers kept, apart from the last: four full pages or many short answers. A page is held twice, as text and
as facts; a thousand runs then keep 128 MB at the most."""

PAGES: Final = 1_024
"""Pages remembered, those shown last: a prompt that holds more takes millions of tokens. About 400 KB."""
STRETCHES: Final = 64
"""Stretches of a page that are remembered; a page has more where many lines match a pattern."""

_RANGE_BYTES: Final = 200
_PAGE_BYTES: Final = 400
_CONTENT_BYTES: Final = 215
_CALL_BYTES: Final = 1_000
"""What a range, a content and an answer take in addition to their texts."""

Range = tuple[str, Selection, int]
"""A stash id, what of it was asked for, and from which offset on."""


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page that was shown."""

    asked: Range
    tag: str
    """By which a prompt shows that it holds the page."""
    size: int
    """Bytes of the original in it."""
    stretches: tuple[tuple[int, int], ...]
    """Which ones, each from a byte to before another."""
    prompts: int
    """How many prompts of the run there were before."""

    def stands_at(self, now: InPrompt) -> int:
        """The iteration at which the prompt holds it, or will; 0: it does not."""
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
    """What one run's model was shown by recall. Not thread-safe: a run's tool calls come one after another.

    Each method takes constant time.
    """

    def __init__(self, limits: RecallLimits, reached: Callable[[str], None] = lambda _: None) -> None:
        """`reached` is called with the name of a limit when an entry is evicted for it."""
        self.limits = limits
        self._reached = reached
        self._ranges: LRUCache[Range, int] = _Remembered(RANGES, lambda: reached("recall.ranges"))
        self._contents: LRUCache[str, _ShownContent] = _Remembered(CONTENTS, lambda: reached("recall.contents"))
        self._pages: OrderedDict[int, ShownPage] = OrderedDict()
        """Those shown last, by a number that grows."""
        self._of_content: dict[str, deque[int]] = {}
        """Their numbers, by stash id."""
        self._number = 0
        self._calls: OrderedDict[str, ToolAnswer] = OrderedDict()
        self._calls_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """What is kept, estimated."""
        kept = _RANGE_BYTES * len(self._ranges) + _CONTENT_BYTES * len(self._contents)
        return kept + _PAGE_BYTES * len(self._pages) + self._calls_bytes + _CALL_BYTES * len(self._calls)

    def times(self, asked: Range) -> int:
        """How often this range was shown."""
        return self._ranges.get(asked, 0)

    def had(self, asked: Range) -> bool:
        """Whether this range was shown as often as it is to be."""
        return self.times(asked) >= self.limits.repeats

    def spent(self, stash_id: str) -> bool:
        """Whether so much of this content was shown, in whatever ranges, that no more of it is to be."""
        content = self._contents.get(stash_id)
        return content is not None and 0 < content.shown >= MOST_TIMES_OVER * content.total

    def pages(self, stash_id: str) -> Sequence[ShownPage]:
        """The pages of a content that were shown, the newest last."""
        return [self._pages[number] for number in self._of_content.get(stash_id, ())]

    def show(self, asked: Range, shown: int, total: int, page: ShownPage | None = None) -> None:
        """Record that the range is shown now: `shown` bytes of content that has `total`."""
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
        """The answer that was given to the call of that request id; None for the empty id, and if it is not kept."""
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
