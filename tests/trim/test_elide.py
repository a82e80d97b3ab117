"""Elision: within its budget, on character and line ends, and the same from an earlier elision as from the whole."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prompt_sidecar.trim.elide import KeptBytes, elided, marker
from prompt_sidecar.trim.elide import cut as cut_to

few = settings(max_examples=80)
ID = "abcdefghjk"
SHORT = len(marker(ID, 500).encode()) + 2
"""What marker and line breaks take of a text of some hundred bytes."""
MARKER = len(marker(ID, 10**9).encode())

pieces = st.sampled_from(["a", "bc", "\n", "é", "日", "🙂", "line of text\n", "\r\n", " "])
long_texts = st.lists(pieces, min_size=40, max_size=120).map("".join)
shares = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]) | st.floats(0.0, 1.0)


def cut(head: bytes, tail: bytes, size: int, budget: int, share: float) -> KeptBytes | None:
    """`elide.cut`, in fewer words."""
    return cut_to(head, tail, size, budget=budget, head_share=share, stash_id=ID)


def render(text: bytes, kept: KeptBytes) -> str:
    """The elided text, from the whole."""
    return elided(text, text, len(text), kept, ID)


@few
@given(long_texts, st.integers(0, 600), shares)
def test_within_the_budget(text: str, budget: int, share: float) -> None:
    """The elided text, marker and line breaks included, takes no more bytes than it may; UTF-8 stays whole."""
    raw = text.encode()
    kept = cut(raw, raw, len(raw), budget, share)
    if kept is None:
        return
    shown = render(raw, kept)
    assert len(shown.encode()) <= budget
    assert kept.head + kept.tail < len(raw)
    assert marker(ID, len(raw) - kept.head - kept.tail) in shown
    assert "\ufffd" not in shown


@few
@given(long_texts, st.integers(0, 600), shares)
def test_head_and_tail_are_the_texts_own(text: str, budget: int, share: float) -> None:
    """What stands before and after the marker is the text's beginning and end, cut between characters."""
    raw = text.encode()
    kept = cut(raw, raw, len(raw), budget, share)
    if kept is None:
        return
    before, _, after = render(raw, kept).partition(marker(ID, len(raw) - kept.head - kept.tail))
    assert text.startswith(before.removesuffix("\n"))
    assert text.endswith(after.removeprefix("\n"))


@few
@given(long_texts, st.integers(90, 600), st.integers(90, 600), shares)
@example("a" * 44 + "\n" + "b" * 455, SHORT + 100, SHORT + 95, 0.5)
@example("a" * 21 + "\nbc" + "é" + "x" * 200, SHORT + 25, SHORT + 24, 1.0)
def test_from_an_elision_as_from_the_whole(text: str, one: int, other: int, share: float) -> None:
    """A tighter elision is made from what the earlier one kept, which the elided text holds as the whole one does."""
    raw = text.encode()
    wide, narrow = max(one, other), min(one, other)
    first = cut(raw, raw, len(raw), wide, share)
    if first is None:
        return
    head, tail = raw[: first.head], raw[len(raw) - first.tail :]
    shown = render(raw, first).encode()
    assert (head, tail) == (shown[: first.head], shown[len(shown) - first.tail :])
    again = cut(head, tail, len(raw), narrow, share)
    if again is not None:
        assert again.head <= first.head
        assert again.tail <= first.tail
        assert render(raw, again) == elided(head, tail, len(raw), again, ID)


@few
@given(long_texts, st.integers(90, 600), st.integers(90, 600), shares, shares)
def test_from_an_elision_never_more(text: str, one: int, other: int, share: float, later_share: float) -> None:
    """Whatever budget and share come later, an elision of an elision keeps no more of either side."""
    raw = text.encode()
    first = cut(raw, raw, len(raw), one, share)
    if first is None:
        return
    again = cut(raw[: first.head], raw[len(raw) - first.tail :], len(raw), other, later_share)
    if again is not None:
        assert again.head <= first.head
        assert again.tail <= first.tail


@few
@given(long_texts, st.integers(90, 600), shares)
def test_same_budget_again_changes_nothing(text: str, budget: int, share: float) -> None:
    """Eliding an elision to the budget that it was made for gives it back."""
    raw = text.encode()
    first = cut(raw, raw, len(raw), budget, share)
    if first is not None:
        head, tail = raw[: first.head], raw[len(raw) - first.tail :]
        assert first == cut(head, tail, len(raw), budget, share)


def test_no_room_for_more_than_the_marker() -> None:
    """A budget that the marker fills gives no elision."""
    raw = b"x" * 500
    size = len(marker(ID, 500).encode())
    assert None is cut(raw, raw, 500, size + 2, 0.5)
    assert KeptBytes(0, 1) == cut(raw, raw, 500, size + 3, 0.5)


def test_a_text_that_fits_is_not_cut() -> None:
    """Nothing is elided where head and tail would hold the whole text."""
    raw = b"x" * 100
    assert None is cut(raw, raw, 100, 1_000, 0.5)


def test_moves_to_line_ends_that_are_near() -> None:
    """The head ends after a line, and the tail begins with one, if one ends within an eighth of what is kept."""
    raw = b"0123456789abcdefghijklmnopqrstu\n" * 40
    kept = cut(raw, raw, len(raw), MARKER + 2 + 4 * 32 * 2 + 20, 0.5)
    assert kept is not None
    assert (0, 0) == (kept.head % 32, kept.tail % 32)
    lone = b"x" * 10 + b"\n" + b"y" * 1_000 + b"\n" + b"z" * 10
    far = cut(lone, lone, len(lone), MARKER + 200, 0.5)
    assert far is not None
    assert far.head > 90
    assert far.tail > 90


@pytest.mark.parametrize(
    ("share", "sides"), [(1.0, (True, False)), (0.0, (False, True)), (0.5, (True, True)), (0.25, (True, True))]
)
def test_head_and_tail_get_their_shares(share: float, sides: tuple[bool, bool]) -> None:
    """The head gets its share of what is kept, the tail the rest."""
    raw = b"x" * 1_000
    kept = cut(raw, raw, 1_000, MARKER + 402, share)
    assert kept is not None
    assert sides == (kept.head > 0, kept.tail > 0)
    assert abs(kept.head - share * (kept.head + kept.tail)) <= 1
