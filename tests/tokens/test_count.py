"""Counts: exact where they can be, the same every time, linear, stoppable, and never an exception."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prompt_sidecar.tokens import ENCODINGS, Counter, VocabularyError, warm
from prompt_sidecar.tokens import count as counting
from prompt_sidecar.tokens.count import BLOCK_SLICES, CACHE_FROM_CHARS, CUT_WINDOW, SLICE_CHARS
from tests.tokens.encodings import ENCODED

BLOCK_CHARS = BLOCK_SLICES * SLICE_CHARS
SHARED = Counter(ENCODED)
"""Kept over all examples of all properties, so that its cache is full of other texts' blocks."""

by_encoding = pytest.mark.parametrize("encoding", ENCODINGS)

any_text = st.text(st.characters(exclude_categories=()), max_size=2_000)
pieces = st.sampled_from(
    [
        "\n",
        " ",
        "  ",
        "\t",
        "\r\n",
        "a",
        "word ",
        "Zß",
        "漢字",
        "🙂",
        "e\u0301",
        "<|endoftext|>",
        "'s",
        "123",
        "=",
        "\ud800",
    ]
)
long_text = st.lists(st.tuples(pieces, st.integers(1, 9_000)), max_size=8).map(
    lambda runs: "".join(piece * times for piece, times in runs)
)


def slow_count(text: str, encoding: str) -> int:
    """The slow twin: no cache, no blocks, cuts found a character at a time."""
    tokens = 0
    while len(text) > SLICE_CHARS:
        window = range(SLICE_CHARS - 1, SLICE_CHARS - CUT_WINDOW - 1, -1)
        newline = next((at + 1 for at in window if text[at] == "\n"), None)
        space = SLICE_CHARS if text[SLICE_CHARS] == " " else next((at for at in window if text[at] == " "), None)
        cut = newline or space or SLICE_CHARS
        tokens += len(ENCODED[encoding].encode_ordinary(text[:cut]))
        text = text[cut:]
    return tokens + len(ENCODED[encoding].encode_ordinary(text))


@by_encoding
@settings(max_examples=40, deadline=None)
@given(text=any_text | long_text)
@example(text="x" * SLICE_CHARS)
@example(text="x" * (SLICE_CHARS + 1))
@example(text=" " * (BLOCK_CHARS + 1))
@example(text=("y" * (SLICE_CHARS - CUT_WINDOW) + "\n") * 3)
@example(text=("y" * (SLICE_CHARS - CUT_WINDOW - 1) + "\n") * 3)
def test_equals_its_slow_twin(text: str, encoding: str) -> None:
    """Uncached, cached and shared with other texts, the count is that of the plain rule."""
    expected = slow_count(text, encoding)
    counter = Counter(ENCODED, cache_entries=1)
    assert expected == counter.count(text, encoding)
    assert expected == counter.count(text, encoding)
    assert expected == SHARED.count(text, encoding)
    assert expected == SHARED.count(text, encoding)


@by_encoding
@settings(max_examples=40, deadline=None)
@given(first=any_text | long_text, second=any_text | long_text)
def test_is_nearly_additive(first: str, second: str, encoding: str) -> None:
    """Joining two texts changes their tokens by no more than moved cuts and one seam can."""
    apart = SHARED.count(first, encoding) + SHARED.count(second, encoding)
    joined = SHARED.count(first + second, encoding)
    # Each cut, and the seam, may break a token in two and make the merges around it come out differently.
    seams = 4 + 2 * (len(first) + len(second)) // (SLICE_CHARS - CUT_WINDOW)
    assert abs(apart - joined) <= 16 * seams
    assert joined >= 0


@by_encoding
@settings(max_examples=40, deadline=None)
@given(text=any_text)
def test_short_text_is_counted_whole(text: str, encoding: str) -> None:
    """Up to a slice, a count is tiktoken's own; and no text has more tokens than bytes."""
    assert len(ENCODED[encoding].encode_ordinary(text)) == SHARED.count(text, encoding)
    assert SHARED.count(text, encoding) <= len(text.encode("utf-8", "surrogatepass"))


@by_encoding
def test_recorded_texts(recorded: list[str], encoding: str) -> None:
    """On recorded text slices change at most 0.03 % of a count, and hardly any of a text as agents send it."""
    whole = ENCODED[encoding].encode_ordinary
    pairs = [(len(whole(text)), SHARED.count(text, encoding)) for text in recorded]
    assert [] == [(expected, count) for expected, count in pairs if abs(expected - count) > max(1, 0.000_3 * expected)]
    joined = "\n".join(recorded)
    expected = len(whole(joined))
    assert expected == pytest.approx(SHARED.count(joined, encoding), rel=0.000_3)


def _base64(size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(size))[:size].decode()


def _cjk(size: int) -> str:
    return "".join(map(chr, random.Random(2).choices(range(0x4E00, 0x9FA5), k=size // 3)))


def _zalgo(size: int) -> str:
    marks = map(chr, random.Random(4).choices(range(0x300, 0x36F), k=size // 2))
    return "".join("a" + mark if at % 8 == 0 else mark for at, mark in enumerate(marks))


def _letters(size: int) -> str:
    return "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz", k=size))


HOSTILE: Mapping[str, Callable[[int], str]] = {
    "one letter": lambda size: "a" * size,
    "letters": _letters,
    "spaces": lambda size: " " * size,
    "tabs": lambda size: "\t" * size,
    "no-break spaces": lambda size: "\u00a0" * (size // 2),
    "newlines": lambda size: "\n" * size,
    "spaces and newlines": lambda size: " \n" * (size // 2),
    "base64": _base64,
    "one ideograph": lambda size: "漢" * (size // 3),
    "ideographs": _cjk,
    "emoji": lambda size: "🙂" * (size // 4),
    "emoji joined": lambda size: "👩\u200d👩\u200d👧" * (size // 18),
    "combining marks": _zalgo,
    "one base and marks": lambda size: "e" + "\u0301" * (size // 2),
    "dashes": lambda size: "-" * size,
    "special tokens": lambda size: "<|endoftext|>" * (size // 13),
    "lone surrogates": lambda size: "\ud800" * (size // 3),
    "NUL": lambda size: "\0" * size,
}


@by_encoding
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_counted_closely(kind: str, encoding: str) -> None:
    """Hostile text differs from tiktoken's own count by at most 0.03 %, or one token a slice where that is more."""
    text = HOSTILE[kind](100_000)
    expected = len(ENCODED[encoding].encode_ordinary(text))
    slices = len(text) // (SLICE_CHARS - CUT_WINDOW)
    assert abs(expected - Counter(ENCODED).count(text, encoding)) <= max(0.000_3 * expected, slices)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_takes_linear_time(kind: str) -> None:
    """The tokenizer, whose merges are worse than linear, gets no character twice, in slices of bounded length."""
    sizes: list[int] = []

    def slice_counter(text: str) -> int:
        sizes.append(len(text))
        return 1

    text = HOSTILE[kind](1_000_000)
    Counter({"sizes": lambda: slice_counter}).count(text, "sizes")
    assert len(text) >= sum(sizes)  # less where pieces are alike, whose counts are remembered
    assert SLICE_CHARS >= max(sizes)
    assert len(sizes) <= len(text) / (SLICE_CHARS - CUT_WINDOW) + 1
    Counter(ENCODED).count(text, "o200k_base")


def test_what_panics_in_one_piece_is_counted() -> None:
    """Two million spaces, on which tiktoken panics, have a token for every 128."""
    assert 2_000_000 // 128 == Counter(ENCODED).count(" " * 2_000_000, "o200k_base")


def test_special_tokens_are_ordinary_text() -> None:
    """The text of a special token counts as the words that it is written with."""
    assert 7 == SHARED.count("<|endoftext|>", "o200k_base")


@pytest.mark.parametrize("times", [1, CACHE_FROM_CHARS, BLOCK_CHARS])
def test_a_panic_is_estimated_from_above(times: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the tokenizer panics on a slice, that slice counts its bytes and the rest goes on."""
    panics = tiktoken.Encoding(
        "panics",
        pat_str=r"(?:(y+)\1*)+$(?<=z)|[^y]|y",  # backtracks beyond the engine's limit on a run of y
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={},
    )
    with pytest.raises(BaseException, match="BacktrackLimitExceeded"):
        panics.encode_ordinary("y" * 60)

    text = "é" * times + "y" * 60

    assert len(text.encode()) == Counter({"panics": panics}).count(text, "panics")
    assert "ééé" not in capfd.readouterr().err


def test_other_errors_are_not_swallowed() -> None:
    """Only a panic is estimated; what is no text is a TypeError as ever."""
    with pytest.raises((TypeError, AttributeError)):
        SHARED.count(b"bytes", "o200k_base")  # type: ignore[arg-type]


def test_an_unknown_encoding_is_a_key_error() -> None:
    """An encoding that was not given cannot be counted in."""
    with pytest.raises(KeyError, match="r50k_base"):
        SHARED.count("text", "r50k_base")


class Stopped(Exception):
    """What a caller raises to end a count."""


def _numbered_lines(characters: int) -> str:
    return "".join(f"line {number} of some log or other\n" for number in range(characters // 32))


def test_check_is_called_between_blocks() -> None:
    """The caller is asked once for about every 64 KB."""
    text = _numbered_lines(1_000_000)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1

    Counter(ENCODED).count(text, "o200k_base", check)

    assert len(text) // BLOCK_CHARS <= calls <= len(text) // (BLOCK_SLICES * (SLICE_CHARS - CUT_WINDOW))


def test_check_is_not_called_for_ordinary_messages() -> None:
    """A text of one block has nothing to stop between."""

    def check() -> None:
        raise Stopped

    assert Counter(ENCODED).count("x " * 3_000, "o200k_base", check) > 0


def test_a_stopped_count_goes_on_where_it_ended() -> None:
    """A retry counts only the blocks that were not finished: each attempt gets further, and the sum is right."""
    text = _numbered_lines(600_000)
    counter = Counter(ENCODED)
    encoded = 0
    attempts = 0

    def stop_after_new_work() -> None:
        if len(counter._coders["o200k_base"]._cache) > encoded:  # noqa: SLF001  # what is remembered is the point
            raise Stopped

    while True:
        attempts += 1
        encoded = len(counter._coders["o200k_base"]._cache)  # noqa: SLF001
        try:
            tokens = counter.count(text, "o200k_base", stop_after_new_work)
        except Stopped:
            continue
        break

    assert slow_count(text, "o200k_base") == tokens
    assert attempts == len(counter._coders["o200k_base"]._cache)  # noqa: SLF001


def test_the_cache_is_bounded() -> None:
    """However many texts are counted, no more entries than allowed are kept, each a hash and a number."""
    counter = Counter(ENCODED, cache_entries=8)
    for number in range(100):
        counter.count(f"{number} " * CACHE_FROM_CHARS, "o200k_base")
    cache = counter._coders["o200k_base"]._cache  # noqa: SLF001
    assert 8 == len(cache)
    assert {32} == {len(key) for key in cache}


def test_counts_can_be_forgotten() -> None:
    """A text that comes again is counted again, to the same."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    counter = Counter({"o200k_base": lambda: count})
    text = "a" * CACHE_FROM_CHARS
    assert counter.count(text, "o200k_base") == counter.count(text, "o200k_base")
    assert [text] == counted
    counter.forget()
    assert len(text) == counter.count(text, "o200k_base")
    assert [text, text] == counted


def test_a_cache_needs_room_for_one() -> None:
    """A cache of nothing is a mistake that is named."""
    with pytest.raises(ValueError, match="cache_entries is 0; it may be 1 or more"):
        Counter(ENCODED, cache_entries=0)


def test_encodings_do_not_share_counts() -> None:
    """One text has its own count in each encoding."""
    text = "Größe, naïveté, 漢字仮名交じり文 " * 100
    counter = Counter(ENCODED)
    assert {name: slow_count(text, name) for name in ENCODINGS} == {
        name: counter.count(text, name) for name in ENCODINGS
    }


def test_many_threads_agree() -> None:
    """Threads that count the same texts at once through a cache too small for them get the same counts."""
    texts = [_numbered_lines(size) + str(size) for size in range(100, 80_000, 10_000)]
    expected = [slow_count(text, "cl100k_base") for text in texts]
    counter = Counter(ENCODED, cache_entries=4)
    with ThreadPoolExecutor(8, initializer=warm, initargs=(counter,)) as pool:
        answers = list(pool.map(lambda _: [counter.count(text, "cl100k_base") for text in texts], range(8)))
    assert [expected] * 8 == answers


def test_warm_counts_in_what_is_loaded() -> None:
    """Warming fails where counting would, leaves nothing in the cache, and loads nothing."""
    counter = Counter(ENCODED)
    warm(counter)
    assert ENCODINGS == counter.encodings == counter.loaded
    assert len(counting._WARM_TEXT) < CACHE_FROM_CHARS  # noqa: SLF001
    lazy = Counter({"words": lambda: lambda text: len(text.split())})
    warm(lazy)
    assert () == lazy.loaded


def test_an_encoding_is_loaded_once_by_whoever_needs_it_first() -> None:
    """Eight threads that need an encoding at once load it once, and all get their counts."""
    together, loads = Barrier(8), []

    def load_words() -> Callable[[str], int]:
        loads.append(1)
        return lambda text: len(text.split())

    counter = Counter({"words": load_words, "other": load_words})

    def count(_: int) -> int:
        together.wait()
        return counter.count("three short words", "words")

    assert not counter.loaded
    with ThreadPoolExecutor(8) as pool:
        assert [3] * 8 == list(pool.map(count, range(8)))
    assert [1] == loads
    assert ("words",) == counter.loaded


def test_loading_one_encoding_keeps_nobody_from_counting_in_another() -> None:
    """While a vocabulary is being loaded, counts in another go on."""
    begun, go_on = Event(), Event()

    def load_slowly() -> Callable[[str], int]:
        begun.set()
        assert go_on.wait(30)
        return len

    counter = Counter({"slow": load_slowly, "words": lambda: lambda text: len(text.split())})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(counter.count, "abc", "slow")
        assert begun.wait(30)
        assert 2 == counter.count("two words", "words")
        assert not waiting.done()
        go_on.set()
        assert 3 == waiting.result(30)


def test_a_load_that_failed_is_tried_again() -> None:
    """An error of loading is reported, and the next count tries again."""
    answers: list[Callable[[str], int]] = []

    def load_later() -> Callable[[str], int]:
        if not answers:
            answers.append(len)
            raise VocabularyError("vocabulary words: there is nothing to read")
        return answers[0]

    counter = Counter({"words": load_later})
    with pytest.raises(VocabularyError, match="nothing to read"):
        counter.load("words")
    assert 3 == counter.count("abc", "words")
