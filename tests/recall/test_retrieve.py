"""Pages: bounded, whole characters, nothing lost between them; bad selections refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.recall.outcome import Outcome, describe, describe_page
from prompt_sidecar.recall.retrieve import MAX_PAGE_TOKENS, MIN_PAGE_TOKENS, WINDOW_BYTES_PER_TOKEN, select
from prompt_sidecar.recall.selection import ByteRange, LineRange, Page, PatternMatch, Selection, Stretch

TEXT = "text/plain"
Count = Callable[[str], int]


def by_bytes(text: str) -> int:
    """The most tokens a text can have: one a byte."""
    return len(text.encode())


def by_words(text: str) -> int:
    """Something like a tokenizer: words, and every space but the first of a run costs."""
    return len(text.split()) + text.count("  ") + text.count("\n")


def by_four(text: str) -> int:
    """A quarter of the characters."""
    return math.ceil(len(text) / 4)


def uneven(text: str) -> int:
    """Not monotone: a prefix may cost more than the text it is of, as merges across a cut can make it."""
    return math.ceil(len(text) / 3) + 5 * (len(text) % 2)


COUNTS = st.sampled_from([by_bytes, by_words, by_four, uneven])
ORIGINALS = st.one_of(
    st.text(max_size=400).map(lambda text: text.encode("utf-8", "replace")),
    st.text(alphabet="ab \n", max_size=600).map(str.encode),
    st.text(alphabet="é漢👍\n", max_size=300).map(str.encode),
    st.binary(max_size=300),
)


def slow_lines(original: bytes) -> list[bytes]:
    """The lines with their line feeds, by splitting."""
    pieces = original.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def pages(original: bytes, selection: Selection, page_tokens: int, count: Count) -> list[Page]:
    """All pages of a selection, as a caller would turn them."""
    found = [select(original, TEXT, selection, 0, page_tokens, count)]
    while found[-1].more:
        found.append(select(original, TEXT, selection, found[-1].next_offset, page_tokens, count))
        assert found[-1].content
    return found


def check(original: bytes, selection: Selection, wanted: bytes, page_tokens: int, count: Count) -> None:
    """What holds for every selection: the pages make up exactly what is wanted, within bounds, and say where it is."""
    turned = pages(original, selection, page_tokens, count)
    assert wanted == b"".join(page.content for page in turned)
    for page in turned:
        assert page.content_tokens <= page_tokens
        assert page.content_tokens == (count(page.content.decode("utf-8", "replace")) if page.content else 0)
        assert page.content == b"".join(original[each.start_byte : each.end_byte] for each in page.stretches)
        assert (len(original), len(slow_lines(original))) == (page.total_bytes, page.total_lines)
        for each in page.stretches:
            assert original.count(b"\n", 0, each.start_byte) + 1 == each.first_line
            assert original.count(b"\n", 0, each.end_byte - 1) + 1 == each.last_line


@given(original=ORIGINALS, page_tokens=st.integers(MIN_PAGE_TOKENS, 200), count=COUNTS)
def test_pages_of_the_whole_are_the_whole(original: bytes, page_tokens: int, count: Count) -> None:
    """Turning pages gives every byte once, in order, whatever the text and however tokens fall."""
    check(original, None, original, page_tokens, count)


@given(data=st.data(), original=ORIGINALS, page_tokens=st.integers(MIN_PAGE_TOKENS, 200), count=COUNTS)
def test_line_ranges_agree_with_splitting(data: st.DataObject, original: bytes, page_tokens: int, count: Count) -> None:
    """Lines first to last, both shown; a last line beyond the end is the end."""
    lines = slow_lines(original)
    first = data.draw(st.integers(1, max(len(lines), 1)))
    last = data.draw(st.one_of(st.just(0), st.integers(first, len(lines) + 3)))
    wanted = b"".join(lines[first - 1 : last or None])
    check(original, LineRange(first, last), wanted, page_tokens, count)


@given(data=st.data(), page_tokens=st.integers(MIN_PAGE_TOKENS, 200), count=COUNTS)
def test_byte_ranges_are_widened_to_characters(data: st.DataObject, page_tokens: int, count: Count) -> None:
    """A range that splits a character holds the whole of it, at both ends."""
    text = data.draw(st.text(alphabet="aé漢👍\n", min_size=1, max_size=200))
    original = text.encode()
    start = data.draw(st.integers(0, len(original) - 1))
    end = data.draw(st.one_of(st.just(0), st.integers(start + 1, len(original) + 3)))
    at, wanted = 0, b""
    for character in map(str.encode, text):
        if at < (end or len(original)) and at + len(character) > start:
            wanted += character
        at += len(character)
    check(original, ByteRange(start, end), wanted, page_tokens, count)


@given(text=st.text(alphabet="aé漢👍\n", max_size=300), page_tokens=st.integers(MIN_PAGE_TOKENS, 60), count=COUNTS)
def test_no_page_splits_a_character(text: str, page_tokens: int, count: Count) -> None:
    """Each page of UTF-8 is UTF-8."""
    assert text == "".join(page.content.decode() for page in pages(text.encode(), None, page_tokens, count))


@given(original=ORIGINALS, offset=st.integers(0, 400))
def test_any_offset_is_answered_or_refused(original: bytes, offset: int) -> None:
    """An offset that a model makes up shows what stands there, from a whole character on, or is refused by name."""
    if offset == 0 or offset < len(original):
        page = select(original, TEXT, None, offset, MAX_PAGE_TOKENS, by_words)
        assert original.endswith(page.content)
        assert 0 <= len(page.content) - len(original[offset:]) <= 3
    else:
        with pytest.raises(InvalidRequest) as caught:
            select(original, TEXT, None, offset, 4_000, by_words)
        assert "offset" == caught.value.field


def test_a_page_ends_at_a_line_end_when_one_is_near() -> None:
    """Lines are not cut for the sake of a few tokens more; a line longer than a page is."""
    original = b"".join(b"%03d " % number + b"word " * 9 + b"\n" for number in range(100))
    page = select(original, TEXT, None, 0, 200, by_four)
    assert page.content.endswith(b"\n")
    assert page.content_tokens > 150
    assert page.next_offset == len(page.content)
    assert 190 <= select(b"x" * 5_000, TEXT, None, 0, 200, by_four).content_tokens <= 200


@pytest.mark.parametrize("unit", [b"a", b" ", b"\n", "漢".encode(), "👍".encode(), b"word ", b"\xff", b"\x80"])
@pytest.mark.parametrize("count", [by_bytes, by_four, by_words])
def test_work_is_bounded_by_the_page(unit: bytes, count: Count) -> None:
    """However large and odd the original, no more than a few pages' worth of it is counted for one page."""
    counted = 0

    def counting(text: str) -> int:
        nonlocal counted
        counted += len(text.encode())
        return count(text)

    original = unit * (3_000_000 // len(unit))
    page = select(original, TEXT, None, 0, 1_000, counting)
    assert page.content_tokens <= 1_000
    assert len(page.content) >= 250
    # A replacement character is three bytes.
    assert counted <= 8 * WINDOW_BYTES_PER_TOKEN * 1_000 * 3


def test_a_page_is_filled() -> None:
    """Ordinary text fills its pages to nine tenths or to the nearest line end."""
    original = b"".join(b"%d: the quick brown fox jumps over the lazy dog\n" % number for number in range(5_000))
    for page in pages(original, None, 1_000, by_words)[:-1]:
        assert 900 <= page.content_tokens <= 1_000


def test_a_character_that_costs_more_than_a_page_is_shown_alone() -> None:
    """Progress comes first: a count gone mad cannot hold the pages up."""
    found = pages("漢👍".encode(), None, MIN_PAGE_TOKENS, lambda text: 100 * len(text))
    assert ["漢".encode(), "👍".encode()] == [page.content for page in found]


def test_a_line_end_that_costs_more_is_no_reason_to_pass_the_page() -> None:
    """Cutting back to a line end may cost tokens, as merges across the cut can; then the page is cut elsewhere."""
    for page in pages(b"word\n" * 500, None, 100, lambda text: len(text) // 4 + 50 * text.endswith("\n"))[:-1]:
        assert page.content_tokens <= 100


def test_an_empty_original_has_one_empty_page() -> None:
    """Nothing to show is not an error."""
    for selection in (None, LineRange(1, 0), ByteRange(0, 0), PatternMatch("x", 0, False)):
        page = select(b"", "application/json", selection, 0, 4_000, by_words)
        assert Page(b"", "application/json", 0, 0, [], False, 0, 0, 0) == page


@pytest.mark.parametrize(
    ("selection", "offset", "page_tokens", "field"),
    [
        (LineRange(0, 1), 0, 100, "lines.first"),
        (LineRange(-1, 0), 0, 100, "lines.first"),
        (LineRange(4, 0), 0, 100, "lines.first"),
        (LineRange(2, 1), 0, 100, "lines.last"),
        (LineRange(1, -1), 0, 100, "lines.last"),
        (ByteRange(-1, 0), 0, 100, "bytes.start"),
        (ByteRange(11, 0), 0, 100, "bytes.start"),
        (ByteRange(3, 3), 0, 100, "bytes.end"),
        (ByteRange(3, -2), 0, 100, "bytes.end"),
        (PatternMatch("a", -1, False), 0, 100, "pattern.context_lines"),
        (PatternMatch("a", 101, False), 0, 100, "pattern.context_lines"),
        (PatternMatch("", 0, False), 0, 100, "pattern.expression"),
        (PatternMatch("a", 0, False), 11, 100, "offset"),
        (None, -1, 100, "offset"),
        (None, 11, 100, "offset"),
        (LineRange(2, 2), 1, 100, "offset"),
        (LineRange(2, 2), 8, 100, "offset"),
        (None, 0, MIN_PAGE_TOKENS - 1, "page_tokens"),
        (None, 0, MAX_PAGE_TOKENS + 1, "page_tokens"),
        (None, 0, -5, "page_tokens"),
    ],
)
def test_bad_requests_name_the_field(selection: Selection, offset: int, page_tokens: int, field: str) -> None:
    """What is wrong is named, with what would be accepted, and without a word of the original."""
    with pytest.raises(InvalidRequest) as caught:
        select(b"one\nsec\nxyz", TEXT, selection, offset, page_tokens, by_words)
    assert field == caught.value.field
    assert "accepted: " in caught.value.message
    assert "sec" not in caught.value.message


def test_the_sentence_of_a_hit_states_the_range() -> None:
    """A model reads what it has seen, of how much, and where more follows."""
    original = b"".join(b"line %d\n" % number for number in range(1, 1_204))
    page = select(original, TEXT, LineRange(1, 999), 7, 3_000, by_words)
    assert "bytes 7-8,883 of 10,923, lines 2-999 of 1,203; nothing more follows." == describe_page(page)
    page = select(original, TEXT, None, 0, 3_000, by_words)
    assert page.next_offset > 8_000
    assert describe_page(page).endswith(f" of 1,203; more follows at offset {page.next_offset}.")
    rest = select(original, TEXT, LineRange(1_203, 0), 0, 800, by_words)
    assert describe_page(rest).endswith("lines 1,203-1,203 of 1,203; nothing more follows.")


def test_the_sentence_of_a_search_counts_the_matches() -> None:
    """Matches and stretches are counted; no match is said in so many words."""
    original = b"a\nb\nc\nb\n"
    found = select(original, TEXT, PatternMatch("b", 0, False), 0, 100, by_words)
    assert "2 matching lines; bytes 2-8 of 8, lines 2-4 of 4 in 2 stretches; nothing more follows." == describe_page(
        found, searched=True
    )
    none = select(original, TEXT, PatternMatch("z", 0, False), 0, 100, by_words)
    assert "No line matches the pattern; the whole is 8 bytes and 4 lines." == describe_page(none, searched=True)


def test_final_outcomes_say_so() -> None:
    """All but RUN_UNKNOWN say that asking again will not help; RUN_UNKNOWN says what must come first."""
    for outcome in (Outcome.EXPIRED, Outcome.EVICTED, Outcome.NOT_FOUND):
        assert "Asking again will not help" in describe(outcome)
    assert "prompt must be sent for trimming again first" in describe(Outcome.RUN_UNKNOWN)


@settings(max_examples=50)
@given(original=st.text(alphabet="ab\n", max_size=200).map(str.encode), context=st.integers(0, 3))
def test_stretches_of_a_page_are_apart(original: bytes, context: int) -> None:
    """Stretches come in order and never touch: what touches is one stretch."""
    page = select(original, TEXT, PatternMatch("a", context, False), 0, 4_000, by_words)
    ends = [(each.start_byte, each.end_byte) for each in page.stretches]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert all(isinstance(each, Stretch) for each in page.stretches)
