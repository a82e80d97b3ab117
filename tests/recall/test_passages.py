"""Passages: contiguous, covering, of whole characters, of bounded length, at line ends where there are any."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prompt_sidecar.recall.passages import AIM_WORDS, LEAST_WORDS, MOST_BYTES, MOST_WORDS, passages
from tests.oracle.data import document, present
from tests.recall.test_recorded import texts
from tests.steps import growth

_WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")

_LINES = st.lists(
    st.sampled_from(["", "one two", "x" * 700, "é漢字" * 90, "a b " * 40, "\t  ", "word " * 7]), max_size=60
)
_TEXTS = st.one_of(st.text(max_size=3_000), _LINES.map("\n".join), _LINES.map("".join))


def cut(original: bytes) -> list[bytes]:
    """The passages' bytes; asserts that they lie one after another, none empty, none too long."""
    found = list(passages(original))
    edges = [0, *(end for _, end in found)]
    assert found == list(pairwise(edges))
    assert all(start < end <= start + MOST_BYTES for start, end in found)
    assert len(original) == edges[-1]
    return [original[start:end] for start, end in found]


def twin(original: bytes) -> list[tuple[int, int]]:
    """The slow twin: the same cuts, looked up among the starts of all words and the ends of all lines of a block."""
    found: list[tuple[int, int]] = []
    start, size = 0, len(original)
    while start < size:
        end = min(start + 32_768, size)
        words = [word.start() for word in _WORD.finditer(original, start, end)]
        lines = [feed.end() for feed in re.finditer(rb"\n", original[:end]) if feed.end() > start]
        while start < size and (end == size or end - start > MOST_BYTES):
            found.append((start, _end(original, start, words, lines)))
            start = found[-1][1]
    return found


def _end(original: bytes, start: int, words: list[int], lines: list[int]) -> int:
    """The end of one passage."""
    following = [word for word in words if word >= start]
    least, aim, most = (
        min([start + bound, *following[number : number + 1]], default=0)
        for bound, number in (
            (MOST_BYTES // 2, LEAST_WORDS),
            (MOST_BYTES * 3 // 4, AIM_WORDS),
            (MOST_BYTES, MOST_WORDS),
        )
    )
    if most >= len(original):
        return len(original)
    for best in (
        [line for line in lines if least <= line <= aim][-1:],
        [line for line in lines if aim < line <= most][:1],
        [place + 1 for place in range(least, aim) if original[place : place + 1] == b" "][-1:],
    ):
        if best:
            return best[0]
    cut = max([word for word in words if least < word <= aim], default=most)
    while cut > start + 1 and original[cut] & 0xC0 == 0x80 and cut > most - 4:
        cut -= 1
    return cut - 1 if cut - 1 > start and original[cut - 1] == ord("\\") else cut


_UNITS = ["\n", " ", "x", "word ", "a ", "\\n", "\\", "é", "_", "-", "x" * 70, ",", "\t", "\0", "y" * 600, " " * 400]
_MIXED = st.builds(
    lambda units, seed, length: "".join(random.Random(seed).choices(units, k=length)).encode(),
    st.lists(st.sampled_from(_UNITS), min_size=1, max_size=6),
    st.integers(0, 1_000),
    st.sampled_from([20, 200, 2_000, 9_000]),
)


@settings(max_examples=60)
@given(_MIXED)
@example(b"x" * 40_000 + b" word" * 300)
@example(b"a-" * 30_000)
def test_passages_are_the_slow_twins(original: bytes) -> None:
    """The same cuts, where blocks end too."""
    original = original[:70_000]
    assert twin(original) == list(passages(original))


@given(_TEXTS)
def test_passages_cover_a_text_in_whole_characters(text: str) -> None:
    """Joined they are the text, and each of them can be read by itself."""
    assert text == "".join(part.decode() for part in cut(text.encode()))


@given(_TEXTS)
def test_passages_are_bounded_in_words(text: str) -> None:
    """None has more than the bound; one that ends early does so for its bytes, or because the text ends."""
    parts = cut(text.encode())

    assert [] == [part for part in parts if len(_WORD.findall(part)) > MOST_WORDS]
    assert [] == [
        part for part in parts[:-1] if len(_WORD.findall(part)) < LEAST_WORDS - 1 and len(part) < MOST_BYTES // 2 - 4
    ]


@given(st.binary(max_size=3_000))
def test_any_bytes_can_be_cut(original: bytes) -> None:
    """An original that is not UTF-8 is cut all the same."""
    assert original == b"".join(cut(original))


@given(st.recursive(st.text(max_size=300), lambda inner: st.lists(inner, max_size=20), max_leaves=30))
def test_escapes_are_not_parted_from_their_backslash(value: object) -> None:
    """No passage of raw JSON ends with a backslash that escapes what the next one begins with."""
    parts = cut(orjson.dumps(value))

    assert [] == [part for part in parts[:-1] if part.endswith(b"\\") and part.strip(b"\\")]


def test_lines_are_kept_whole() -> None:
    """Where lines are short, passages end at line ends and have about ninety words."""
    parts = cut(b"".join(b"line %d has seven words in it\n" % number for number in range(500)))

    assert [] == [part for part in parts if not part.endswith(b"\n")]
    assert {84, 85, 86, 87, 88, 89, 90, 91} >= {len(_WORD.findall(part)) for part in parts[:-1]}


def test_a_line_a_little_too_long_is_kept_whole() -> None:
    """A line end past the aim is taken if it lies within the bound."""
    first, second = b"word " * 100 + b"\n", b"more " * 100 + b"\n"

    assert [first, second] == cut(first + second)


def test_a_long_line_is_cut_at_spaces() -> None:
    """A paragraph on one line ends its passages between words."""
    parts = cut(b"Lorem ipsum, dolor sit-amet. " * 400)

    assert [] == [part for part in parts if not part.endswith(b" ")]


def test_minified_json_is_cut_where_a_word_begins() -> None:
    """Without spaces, names stay whole."""
    parts = cut(orjson.dumps({f"name_{number}": f"value{number}" for number in range(1_000)}))

    assert [] == [part for part in parts[1:] if not part.startswith((b"name_", b"value"))]


@pytest.mark.parametrize(
    "text", [b"\t" * 3_000 + b"word", (b"-" * 5_000 + b"\t") * 9 + b"a word", b"." * 40_000 + b"x"]
)
def test_a_long_stretch_without_words_is_cut_before_the_words_after_it(text: bytes) -> None:
    """Bytes bound it: its passage does not reach to a word that comes thousands of bytes later."""
    assert {MOST_BYTES} == {len(part) for part in cut(text)[:-1] if not part.strip(b"-.\t")}


def test_empty_has_no_passage() -> None:
    """Nothing to find."""
    assert [] == cut(b"")


@pytest.mark.parametrize("path", present("runs/*.json.gz"), ids=lambda path: path.name)
def test_recorded_texts_are_cut_into_screenfuls(path: Path) -> None:
    """Every text is covered, and the typical passage has the length that was aimed at."""
    # Signatures and pictures in Base64 have no words.
    parts = [part for text in texts(document(path)) if len(text) > 2_000 and b" " in text for part in cut(text)]
    words = sorted(len(_WORD.findall(part)) for part in parts)

    assert 50 <= words[len(words) // 2] <= 110


@pytest.mark.parametrize("unit", ["\n", " ", "x", "a ", "a\n", "漢", "\\", "\u0301", "\r\n", "\0"])
def test_hostile_texts_take_linear_time(unit: str) -> None:
    """Eight times the text takes about eight times the steps; four megabytes, whose square would never end, end."""
    text = (unit * 4_000_000).encode()[:4_000_000].decode("utf-8", "ignore").encode()

    def read(size: int) -> None:
        for _ in passages(text[:size].decode("utf-8", "ignore").encode()):
            pass

    assert growth(read, 20_000, 8) < 12
    read(len(text))
