"""Patterns: by line, as a naive grep finds them; hostile expressions run in linear time or are refused."""

from __future__ import annotations

import re
from math import ceil

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.recall import pattern
from prompt_sidecar.recall.pattern import (
    MAX_EXPRESSION,
    MAX_MATCHING_LINES,
    MAX_WORK,
    OVERLAP,
    PIECE_WORK,
    matching_stretches,
)
from prompt_sidecar.recall.retrieve import select
from prompt_sidecar.recall.selection import PatternMatch

EXPRESSIONS = ["a", "^a", "a$", "^$", "^", "$", "a|b", "b*", "a.c", "[^a]", "(ab)+", "é", "B", "a+b?", r"\s", "c.*a"]


def grep(original: bytes, expression: str, context: int, *, ignore_case: bool) -> tuple[list[tuple[int, int]], int]:
    """The slow twin: match every line by itself with `re`, mark the lines to show, join neighbours."""
    lines = [piece + b"\n" for piece in original.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    if not lines[-1]:
        lines.pop()
    compiled = re.compile(expression, re.IGNORECASE | re.ASCII if ignore_case else re.ASCII)
    matching = [number for number, line in enumerate(lines) if compiled.search(line.removesuffix(b"\n").decode())]
    shown = {
        near
        for number in matching
        for near in range(max(0, number - context), min(len(lines), number + context + 1))
    }  # fmt: skip
    stretches: list[tuple[int, int]] = []
    at = 0
    for number, line in enumerate(lines):
        if number in shown:
            if stretches and stretches[-1][1] == at:
                stretches[-1] = stretches[-1][0], at + len(line)
            else:
                stretches.append((at, at + len(line)))
        at += len(line)
    return stretches, len(matching)


TEXTS = st.one_of(
    st.text(alphabet="abcAé\n ", max_size=120),
    st.lists(st.sampled_from(["a", "b", "c", "abc", "", "é", "B b", "aac"]), max_size=40).map("\n".join),
)


@given(
    text=TEXTS,
    expression=st.sampled_from(EXPRESSIONS),
    context=st.integers(0, 4),
    ignore_case=st.booleans(),
)
def test_agrees_with_grep(text: str, expression: str, context: int, ignore_case: bool) -> None:
    """One pass with RE2 over the whole finds the lines that matching each by itself finds."""
    wanted = grep(text.encode(), expression, context, ignore_case=ignore_case)
    assert wanted == matching_stretches(text.encode(), PatternMatch(expression, context, ignore_case))


@given(
    text=TEXTS,
    expression=st.sampled_from(EXPRESSIONS),
    context=st.integers(0, 3),
    page_tokens=st.integers(16, 40),
)
def test_pages_of_matches_make_up_the_matches(text: str, expression: str, context: int, page_tokens: int) -> None:
    """Turned pages give every stretch's bytes once, and count all matching lines on each page."""
    original = text.encode()
    stretches, matching = grep(original, expression, context, ignore_case=False)
    content, offset = b"", 0
    while True:
        page = select(original, "text/plain", PatternMatch(expression, context, False), offset, page_tokens, len)
        content += page.content
        assert matching == page.matching_lines
        assert page.content_tokens <= page_tokens
        if not page.more:
            break
        offset = page.next_offset
    assert b"".join(original[start:end] for start, end in stretches) == content


@pytest.mark.parametrize(
    "expression", ["a\nb", r"a\sb", "a[^x]b", "(?s)a.b", r"a\x0ab", r"a[\s\S]b", r"a\PLb", r"a\Wb"]
)
def test_no_match_crosses_a_line_end(expression: str) -> None:
    """Matching is by line, whatever the expression says of line feeds."""
    assert ([], 0) == matching_stretches(b"a\nb\n" * 3, PatternMatch(expression, 0, False))
    assert ([(0, 2)], 1) == matching_stretches(b"a\nb\n", PatternMatch(f"a|{expression}", 0, False))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(a+)+$", b"a" * 1_000_000 + b"b"),
        ("(a|aa)+$", b"a" * 1_000_000 + b"b"),
        ("(x+x+)+y", b"x" * 1_000_000),
        ("(.*)(.*)(.*)(.*)z", b"ab" * 500_000),
        ("a.*a.*a.*b", b"a" * 1_000_000),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", b"a" * 1_000_000),
        ("a.*z|a", b"a\n" * 50_000),
        (r"(?s)a[\s\S]*z|a", b"a\n" * 50_000),
        (r"(?-m)a.*\z|a", b"a\n" * 50_000),
        (r"\w*\d", b"word " * 200_000),
    ],
)
def test_catastrophic_patterns_are_linear(expression: str, text: bytes) -> None:
    """Patterns that take a backtracking engine longer than the universe has lasted end, each byte in few searches."""
    searches = 0

    def counted() -> None:
        nonlocal searches
        searches += 1

    _, lines = matching_stretches(text, PatternMatch(expression, 0, False), counted)
    size = re2.compile(expression.encode()).programsize
    pieces = ceil(2 * size * len(text) / PIECE_WORK * OVERLAP / (OVERLAP - 1))
    assert searches <= lines + pieces + 1


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("a{1001}", "invalid repetition size at character 2"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (r"(\pL{0,30}a){0,30}", "pattern too large"),
        ("secret(", "missing )"),
        ("secret)x", "unexpected )"),
        ("sec[z-a]", "invalid character class range at character 5"),
        ("(?=secret)", "invalid perl operator at character 1"),
        (r"(secret)\1", "invalid escape sequence at character 9"),
        ("*secret", "no argument for repetition operator at character 1"),
        ("secret\\", "trailing \\"),
        (r"secret\C*", "any byte"),
        (r"secret\\\C", "any byte"),
        ("secret\ud800", "lone surrogate"),
        ("secret" * 200, "1,200 characters; accepted: 1 to 1,000"),
        ("", "0 characters; accepted: 1 to 1,000"),
    ],
)
def test_bad_expressions_are_refused_without_being_quoted(
    expression: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message says what is wrong and where; neither it nor stderr repeats the expression or the original."""
    with pytest.raises(InvalidRequest) as caught:
        matching_stretches(b"the original's secret", PatternMatch(expression, 0, False))
    assert "pattern.expression" == caught.value.field
    assert says in caught.value.message
    assert "accepted: " in caught.value.message
    assert "secret" not in caught.value.message
    assert ("", "") == capfd.readouterr()


def test_the_longest_expression_is_accepted() -> None:
    """The bound on length is inclusive."""
    assert ([], 0) == matching_stretches(b"x", PatternMatch("y" * MAX_EXPRESSION, 0, False))


def test_work_is_refused_before_it_is_done() -> None:
    """A large expression on a large original is refused at once; each alone is not."""
    large = "[ab]*a[ab]{900}c"
    original = b"ab" * (MAX_WORK // 900 // 2)
    searched: list[None] = []
    with pytest.raises(InvalidRequest) as caught:
        matching_stretches(original, PatternMatch(large, 0, False), lambda: searched.append(None))
    assert [] == searched
    assert "pattern.expression" == caught.value.field
    assert ([], 0) == matching_stretches(original, PatternMatch("zz", 0, False))
    assert ([], 0) == matching_stretches(original[:10_000], PatternMatch(large, 0, False))


def test_too_many_matches_are_refused() -> None:
    """A pattern that meets every line of a huge original is refused with the bound; one line less is served."""
    assert MAX_MATCHING_LINES == matching_stretches(b"a\n" * MAX_MATCHING_LINES, PatternMatch("a", 100, False))[1]
    with pytest.raises(InvalidRequest) as caught:
        matching_stretches(b"a\n" * (MAX_MATCHING_LINES + 1), PatternMatch("a", 0, False))
    assert "more than 100,000 lines" in caught.value.message


@given(original=st.binary(max_size=200), expression=st.text(max_size=12))
def test_no_input_crashes(original: bytes, expression: str) -> None:
    """Any bytes and any expression give stretches of the original or InvalidRequest."""
    try:
        stretches, lines = matching_stretches(original, PatternMatch(expression, 1, False))
    except InvalidRequest:
        return
    assert lines >= len(stretches)
    assert all(0 <= start < end <= len(original) for start, end in stretches)


@given(
    text=TEXTS,
    expression=st.sampled_from(["a", "^a", "a$", "^$", "^", "$", "a|b", "b*", "a.c", "é", r"\bB", r"a\b"]),
    context=st.integers(0, 2),
    piece=st.integers(16, 40),
)
def test_pieces_agree_with_grep(text: str, expression: str, context: int, piece: int) -> None:
    """However short the pieces, matches shorter than their overlap are found, and anchors see what stands around."""
    wanted = grep(text.encode(), expression, context, ignore_case=False)
    with pytest.MonkeyPatch.context() as patch:
        program = pattern._compile(PatternMatch(expression, 0, False)).programsize  # noqa: SLF001 - the size of a piece
        patch.setattr(pattern, "PIECE_WORK", piece * program)
        patch.setattr(pattern, "MIN_PIECE", 1)
        assert wanted == matching_stretches(text.encode(), PatternMatch(expression, context, False))


HOSTILE = r"((?:[a-p ]{1,60}[b-p]){3}[a-o]{0,100}Q)"


@pytest.mark.parametrize("end", [b" ", b"\n"])
def test_a_search_can_be_stopped(end: bytes) -> None:
    """However complex the expression, and in one line as in many, a search asks after each short piece of work."""
    original = b"abcdefg hijklm".ljust(80, b"p") + end
    original *= 15_000
    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        matching_stretches(original, PatternMatch(HOSTILE, 0, False), stop)
    program = pattern._compile(PatternMatch(HOSTILE, 0, False)).programsize  # noqa: SLF001 - as above
    assert program * len(original) > 20 * pattern.PIECE_WORK


def test_ordinary_expressions_take_few_pieces() -> None:
    """A megabyte in one line is searched for a word in two pieces."""
    asked: list[None] = []
    matching_stretches(b"a " * 500_000, PatternMatch("error [0-9]+", 0, False), lambda: asked.append(None))
    assert len(asked) <= 3


def test_what_compiles_to_too_much_is_refused() -> None:
    """Whatever the size of the original: a piece of it could take too long."""
    with pytest.raises(InvalidRequest, match="instructions") as refused:
        matching_stretches(b"a", PatternMatch(r"[\p{L}\p{N}]{60}", 0, False))
    assert "recall.pattern_work" == refused.value.bound
