"""Marks: the share of its limit that a run reaches is announced once."""

from __future__ import annotations

import pytest

from prompt_sidecar.engine.runs.marks import MARKS, Marks, crossed
from prompt_sidecar.facts.history_size import HistorySize


@pytest.mark.parametrize(
    ("tokens", "already", "expected"),
    [
        (499, (), ()),
        (500, (), (50,)),
        (799, (), (50,)),
        (950, (), (50, 80, 95)),
        (2_000, (50, 80), (95,)),
        (800, (50, 80), ()),
    ],
)
def test_marks_that_are_crossed(tokens: int, already: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """A mark is crossed where the prompt reaches its share of the limit, unless it was announced already."""
    assert expected == crossed(tokens, 1_000, already)


def test_no_limit_crosses_nothing() -> None:
    """Without a limit there is no share of it."""
    assert () == crossed(1_000, 0)


def size_of(sent: int, returned: int) -> HistorySize:
    """A size of which only the totals matter."""
    return HistorySize({}, 1, 1, sent, returned, 0.0)


def test_each_mark_is_announced_once() -> None:
    """Trimming in batches crosses the lower marks again and again; they are announced once."""
    marks = Marks()
    prompts = [(300, 300), (600, 600), (850, 850), (900, 500), (1_300, 890), (1_400, 500), (1_900, 960), (2_000, 970)]
    assert [(), (50,), (80,), (), (), (), (95,), ()] == [marks.announce(size_of(*prompt), 1_000) for prompt in prompts]


def test_asking_changes_nothing() -> None:
    """A dry run announces what a call would, and the call still announces it."""
    marks = Marks()
    assert ((50, 80), (50, 80)) == (
        marks.crossing(size_of(850, 850), 1_000),
        marks.crossing(size_of(850, 850), 1_000),
    )
    assert (50, 80) == marks.announce(size_of(850, 850), 1_000)
    assert () == marks.crossing(size_of(850, 850), 1_000)


def test_a_lower_limit_crosses_marks() -> None:
    """A limit that comes down is announced without any growth."""
    marks = Marks()
    assert ((), (50, 80)) == (marks.announce(size_of(450, 450), 1_000), marks.announce(size_of(450, 450), 500))


def test_a_retry_is_not_announced_again_and_a_new_beginning_is() -> None:
    """Going back a few messages announces nothing again; a history cut to under half begins again."""
    marks = Marks()
    assert (50,) == marks.announce(size_of(520, 520), 1_000)
    assert ((), ()) == (marks.announce(size_of(480, 480), 1_000), marks.announce(size_of(530, 530), 1_000))
    assert () == marks.announce(size_of(200, 200), 1_000)
    assert (50,) == marks.announce(size_of(510, 510), 1_000)
    assert (50, 80, 95) == MARKS
