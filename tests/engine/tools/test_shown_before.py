"""A model that never stops asking costs a bounded number of tokens, and a retry costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import cycle, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.engine.tools.shown_before import (
    CALLS,
    CALLS_BYTES,
    CONTENTS,
    MOST_TIMES_OVER,
    PAGES,
    RANGES,
    Range,
    ShownBefore,
    ShownPage,
)
from prompt_sidecar.facts.limits import RecallLimits
from prompt_sidecar.facts.recall_calls import InPrompt
from prompt_sidecar.facts.tool_calls import RECALL, ToolAnswer, ToolOutcome
from prompt_sidecar.recall.selection import ByteRange, LineRange, Selection
from prompt_sidecar.recall.tag import tag_of
from tests.engine.tools.tool_backend import FIRST, SECOND, OneRun, count

TEXT = "".join(f"{line:>5} worker {line % 7}: request {line * 31} took {line % 900} ms\n" for line in range(1_500))
OTHER = "".join(f"src/module_{line}.py: warning: unused name value_{line * 7}\n" for line in range(300))
ASKS = 400
AN_ASK = 60
"""Tokens that an ask costs once no more is shown."""
AROUND = 130
"""Tokens around what is shown: label, fence."""


def asks(*arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """These, again and again."""
    return cycle(arguments)


def sliding(stash_id: str) -> Iterator[dict[str, Any]]:
    """Another range of lines each time."""
    return ({"id": stash_id, "first_line": 1 + at % 700, "last_line": 1 + at % 700 + at % 90} for at in numbers())


def scripted(run: OneRun, script: Iterator[dict[str, Any]], times: int = ASKS) -> list[ToolAnswer]:
    """What a model is told that asks so often, whatever it is told."""
    return [run.call(RECALL, arguments) for arguments in islice(script, times)]


def shown(answers: list[ToolAnswer]) -> list[bytes]:
    """What of the originals the answers hold."""
    return [answer.recalled.page.content for answer in answers if answer.recalled]


def tokens(answers: list[ToolAnswer]) -> int:
    """What they cost in all."""
    return sum(answer.content_tokens for answer in answers)


def test_the_same_range_is_shown_three_times() -> None:
    """Then the model is told where it has it; the second and third answer say so beside the content."""
    run = OneRun({FIRST: OTHER.encode()})
    answers = scripted(run, asks({"id": FIRST, "last_line": 20}))
    page = max(count(answer.content) for answer in answers)
    labels = [answer.content.split("\n")[0] for answer in answers[:4]]
    assert ["shown" in label for label in labels] == [False, True, True, True]
    assert ["; shown once before; tag=" in labels[1], "; shown 2 times before; tag=" in labels[2]] == [True, True]
    assert "this range was shown 3 times before and is in the prompt, at iteration 7; it is not shown" in labels[3]
    assert [ToolOutcome.OK] * 3 + [ToolOutcome.REPEATED] * (ASKS - 3) == [answer.outcome for answer in answers]
    assert 3 == len(shown(answers)) == len(run.asked)
    assert not answers[-1].is_error
    assert max(answer.content_tokens for answer in answers[3:]) <= AN_ASK
    assert tokens(answers) <= 3 * page + AN_ASK * ASKS


def test_sliding_ranges_end_as_well() -> None:
    """All that is shown of one content while the prompt holds it keeps within six times its bytes and one page."""
    run = OneRun({FIRST: TEXT.encode()})
    answers = scripted(run, sliding(FIRST), 1_000)
    pieces = shown(answers)
    over = MOST_TIMES_OVER + 2  # then more than half of what is shown is new to the prompt
    assert sum(map(len, pieces)) <= over * len(TEXT) + max(map(len, pieces))
    assert ToolOutcome.REPEATED is answers[-1].outcome
    assert "all of this content was shown several times over" in answers[-1].content
    assert max(answer.content_tokens for answer in answers if not answer.recalled) <= AN_ASK
    ceiling = over * count(TEXT) + RecallLimits().page_tokens
    assert sum(answer.recalled.page.content_tokens for answer in answers if answer.recalled) <= ceiling
    assert tokens(answers) <= ceiling + AROUND * len(pieces) + AN_ASK * len(answers)


class Prompts:
    """The prompts of a run: one has come after each ask, and holds these pages of what was recalled."""

    def __init__(self, *, cut: bool = False) -> None:
        self.number = 0
        self.pages: dict[str, int] = {}
        self.original = 0
        self.cut = cut

    def __call__(self, _: str, tags: Sequence[str]) -> InPrompt:
        """What the last one holds."""
        self.number += 1
        pages = {tag: at for tag, at in self.pages.items() if tag in tags}
        return InPrompt(self.number, 90, self.original, pages, frozenset(tags if self.cut else ()))


def test_what_the_prompt_holds_no_more_is_shown_again() -> None:
    """However often; while a page of it is there, the model is told where."""
    prompts = Prompts()
    run = OneRun({FIRST: OTHER.encode()}, prompt=prompts)
    answers = scripted(run, asks({"id": FIRST, "last_line": 20}), 8)
    assert [ToolOutcome.OK] * 8 == [answer.outcome for answer in answers]
    assert "; shown 7 times before; tag=" in answers[-1].content

    prompts.pages = {tag_of(answers[-1].content): 41}
    result = run.call(RECALL, {"id": FIRST, "last_line": 20})
    assert ToolOutcome.REPEATED is result.outcome
    assert "is in the prompt, at iteration 41; it is not shown again while it is there" in result.content
    prompts.pages, prompts.original = {}, 3
    assert "is in the prompt, at iteration 3;" in run.call(RECALL, {"id": FIRST, "last_line": 20}).content
    prompts.original = 0
    assert ToolOutcome.OK is run.call(RECALL, {"id": FIRST, "last_line": 20}).outcome


def test_ranges_that_the_prompt_holds_in_pieces_are_not_shown_again() -> None:
    """Once all was shown several times over; a range that it holds a part of is."""
    prompts = Prompts()
    run = OneRun({FIRST: OTHER.encode()}, prompt=prompts)
    answers = scripted(run, sliding(FIRST), 400)
    assert {ToolOutcome.OK} == {answer.outcome for answer in answers if answer.recalled}
    first, second, last = (
        run.call(RECALL, {"id": FIRST, "first_line": begin, "last_line": end})
        for begin, end in ((1, 9), (10, 20), (40, 50))
    )
    assert [ToolOutcome.OK] * 3 == [answer.outcome for answer in (first, second, last)]
    prompts.pages = {tag_of(first.content): 5, tag_of(second.content): 6, tag_of(last.content): 9}
    result = run.call(RECALL, {"id": FIRST, "first_line": 4, "last_line": 17})
    assert "all of this content was shown several times over and is in the prompt, at iteration 9" in result.content
    result = run.call(RECALL, {"id": FIRST, "first_line": 4, "last_line": 22})
    assert "most of this range is in the prompt, at iteration 9; lines 21-22 can be asked for alone" in result.content
    for first_line, last_line in ((21, 22), (15, 35)):
        result = run.call(RECALL, {"id": FIRST, "first_line": first_line, "last_line": last_line})
        assert ToolOutcome.OK is result.outcome


def test_pages_that_no_prompt_can_hold_end_as_well() -> None:
    """One that was trimmed as soon as it came is shown three times; a shorter one is shown."""
    run = OneRun({FIRST: OTHER.encode()}, prompt=Prompts(cut=True))
    answers = scripted(run, asks({"id": FIRST, "last_line": 20}))
    assert [ToolOutcome.OK] * 3 + [ToolOutcome.REPEATED] * (ASKS - 3) == [answer.outcome for answer in answers]
    assert "trimmed as soon as it was in the prompt" in answers[3].content
    assert tokens(answers) <= 3 * count(answers[0].content) + AN_ASK * ASKS
    assert ToolOutcome.OK is run.call(RECALL, {"id": FIRST, "last_line": 10}).outcome


def test_two_contents_in_turn_end_as_well() -> None:
    """Each is counted by itself."""
    run = OneRun({FIRST: OTHER.encode(), SECOND: OTHER.encode()})
    answers = scripted(run, asks({"id": FIRST}, {"id": SECOND}))
    assert 6 == len(shown(answers))
    assert tokens(answers) <= 2 * 3 * RecallLimits().page_tokens + AN_ASK * ASKS


@pytest.mark.parametrize("arguments", [{"id": "made up"}, {"id": FIRST, "pattern": "nowhere"}, {"id": FIRST}])
def test_what_shows_nothing_costs_a_sentence(arguments: dict[str, Any]) -> None:
    """An id that is not there, a pattern that is not met, and an empty original."""
    run = OneRun({FIRST: b"" if arguments == {"id": FIRST} else OTHER.encode()})
    assert max(answer.content_tokens for answer in scripted(run, asks(arguments))) <= AN_ASK


def test_paging_through_is_no_loop() -> None:
    """The whole content can be read three times over, page by page."""
    run = OneRun({FIRST: (TEXT * 4).encode()})
    for _ in range(3):
        offset, pieces = 0, []
        while True:
            page = run.call(RECALL, {"id": FIRST, "offset": offset}).recalled
            assert page is not None
            pieces.append(page.page.content)
            offset = page.page.next_offset
            if not page.page.more:
                break
        assert (TEXT * 4).encode() == b"".join(pieces)


def test_another_way_to_say_a_range_is_the_same_range() -> None:
    """From line 1 to the end is the whole; a number may be a string."""
    run = OneRun({FIRST: OTHER.encode()})
    scripted(run, asks({"id": FIRST}, {"id": f"id={FIRST}", "first_line": "1"}, {"id": FIRST, "offset": "0"}), 3)
    assert ToolOutcome.REPEATED is run.call(RECALL, {"id": FIRST, "last_line": -1}).outcome


def test_other_limits_hold() -> None:
    """One showing, if that is configured."""
    run = OneRun({FIRST: OTHER.encode()}, limits=RecallLimits(repeats=1))
    answers = scripted(run, asks({"id": FIRST}), 3)
    assert [ToolOutcome.OK, ToolOutcome.REPEATED, ToolOutcome.REPEATED] == [answer.outcome for answer in answers]
    assert "was shown once before and is in the prompt, at iteration 7" in answers[1].content


def test_a_retry_is_no_repetition() -> None:
    """It gets the very same answer and counts once, also when the answer was that no more is shown."""
    run = OneRun({FIRST: OTHER.encode()})
    for number in range(5):
        answers = {id(run.call(RECALL, {"id": FIRST}, request_id=str(number))) for _ in range(4)}
        assert 1 == len(answers)
    outcomes = [run.call(RECALL, {"id": FIRST}, request_id=str(number)).outcome for number in range(5)]
    assert [ToolOutcome.OK] * 3 + [ToolOutcome.REPEATED] * 2 == outcomes


def test_kept_answers_are_bounded_in_number() -> None:
    """The oldest goes when one more comes than are kept."""
    shown = ShownBefore(RecallLimits())
    for number in range(CALLS + 1):
        shown.keep(str(number), ToolAnswer(ToolOutcome.OK, "x"))
    assert shown.answered("0") is None
    assert shown.answered("1") is not None


def test_kept_answers_are_bounded_in_bytes() -> None:
    """Long ones go sooner; the last is always kept, and once they are gone there is room again."""
    reached: list[str] = []
    shown = ShownBefore(RecallLimits(), reached.append)
    for number in range(6):
        shown.keep(str(number), ToolAnswer(ToolOutcome.OK, "x" * (CALLS_BYTES // 4)))
    assert [False, False, True, True, True, True] == [shown.answered(str(number)) is not None for number in range(6)]
    assert ["recall.answers"] * 2 == reached
    shown.keep("huge", ToolAnswer(ToolOutcome.OK, "x" * 2 * CALLS_BYTES))
    assert [False, True] == [shown.answered(name) is not None for name in ("5", "huge")]
    for number in range(CALLS):
        shown.keep(f"small {number}", ToolAnswer(ToolOutcome.OK, "x"))
    assert [False, True] == [shown.answered(name) is not None for name in ("huge", "small 0")]


def test_without_a_request_id_nothing_is_kept() -> None:
    """The empty id names no call."""
    shown = ShownBefore(RecallLimits())
    shown.keep("", ToolAnswer(ToolOutcome.OK, "x"))
    assert shown.answered("") is None


def test_pages_are_bounded_in_number() -> None:
    """The oldest of all goes when one more is shown than are remembered, and is counted."""
    reached: list[str] = []
    shown = ShownBefore(RecallLimits(), reached.append)

    def show(stash_id: str, at: int) -> None:
        asked = stash_id, None, at
        shown.show(asked, 1, 1, ShownPage(asked, f"{stash_id}-{at}", 1, ((at, at + 1),), 1))

    for at in range(PAGES + 1):
        show("a", at)
    assert [PAGES, "a-1"] == [len(shown.pages("a")), shown.pages("a")[0].tag]
    for at in range(PAGES):
        show(str(at), 0)
    assert [0, 1] == [len(shown.pages("a")), len(shown.pages("0"))]
    assert {"recall.pages": 1 + PAGES} == {name: reached.count(name) for name in reached if name != "recall.ranges"}


def test_memory_of_ranges_and_contents_is_bounded() -> None:
    """What was asked for longest ago is forgotten, and counted; a content's bytes outlast its ranges."""
    reached: list[str] = []
    shown = ShownBefore(RecallLimits(repeats=1), reached.append)
    for at in range(RANGES + 1):
        shown.show(("a", ByteRange(at, 0), 0), 1, RANGES // MOST_TIMES_OVER)
    assert [False, True] == [shown.had(("a", ByteRange(at, 0), 0)) for at in (0, 1)]
    assert ["recall.ranges"] == reached
    assert shown.spent("a")
    for at in range(CONTENTS):
        shown.show((str(at), None, 0), 1, 1)
    assert not shown.spent("a")
    assert 1 == reached.count("recall.contents")


SELECTIONS: st.SearchStrategy[Selection] = st.one_of(st.none(), st.builds(LineRange, st.integers(1, 3), st.just(0)))
ASKED: st.SearchStrategy[Range] = st.tuples(st.sampled_from("ab"), SELECTIONS, st.integers(0, 2))


@settings(max_examples=200)
@given(st.lists(st.tuples(ASKED, st.integers(0, 40)), max_size=60))
def test_counts_are_those_of_a_list(steps: list[tuple[Range, int]]) -> None:
    """Within the bounds of memory: as counting over a list of all that was shown."""
    shown = ShownBefore(RecallLimits())
    log: list[tuple[Range, int]] = []
    for asked, size in steps:
        times = sum(before == asked for before, _ in log)
        sizes = sum(length for before, length in log if before[0] == asked[0])
        assert (times, times >= 3) == (shown.times(asked), shown.had(asked))
        assert (sizes > 0 and sizes >= MOST_TIMES_OVER * 50) == shown.spent(asked[0])
        shown.show(asked, size, 50)
        log.append((asked, size))
