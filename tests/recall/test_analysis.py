"""What words a text is made of: names and their parts, ids and codes, other scripts; linear in any text."""

from __future__ import annotations

import json
import random
import string
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prompt_sidecar.recall.analysis import MAX_TERM, MEMO_WORDS, STOPWORDS, Analyser, plain, query_terms, terms
from tests.steps import growth

ANY = st.text(max_size=200) | st.text("aB1_-./@ é日\u0301\u200b\U0001f600", max_size=200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DiffExecutor", ["diffexecutor", "diff", "executor"]),
        ("run_target", ["run_target", "run", "target"]),
        ("HTTPServer2", ["httpserver2", "http", "server", "2"]),
        ("dry-run", ["dry-run", "dri", "run"]),
        ("v1.20", ["v1.20", "v1", "v", "1", "20"]),
        ("src/a_b.py", ["src/a_b.py", "a_b.py", "src", "a_b", "b", "py"]),
        ("the hashes of hashing", ["hash", "hash"]),
        ("Error E1234: ENOENT, HTTP 404", ["error", "e1234", "e", "1234", "enoent", "http", "404"]),
        ("0x1f", ["0x1f"]),
        ("5e4c01057a10732d" * 4, ["5e4c01057a10732d" * 4]),
        ("bob@example.com", ["bob@example.com", "bob", "exampl", "com"]),
        ("café Ａ１ naïve", ["cafe", "a1", "1", "naiv"]),
        ("東京都", ["東京", "京都"]),
        ("猫 and dog", ["猫", "dog"]),
        ("Привет, МИР", ["привет", "мир"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("“DiffExecutor”—gone", ["diffexecutor", "diff", "executor", "gone"]),
        ("--- *** ??? ''", []),
        ("what is the", []),
    ],
)
def test_names_ids_and_other_scripts_become_terms(text: str, expected: list[str]) -> None:
    """A name is kept whole and in parts, function words go, ids stay in one piece, other scripts have words too."""
    assert expected == terms(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("550e8400-e29b-41d4-a716-446655440000", "550E8400-E29B-41D4-A716-446655440000"),
        ("open https://example.com/a/b?c=1 now", "https://example.com/a/b?c=1"),
        ('at "src/run/loop.py", line 12', "loop.py"),
        ("File C:\\Users\\bob\\notes.txt", "notes.txt"),
        ("self.__init__()", "__init__"),
        ("Das Café in Zürich", "cafe zurich"),
        ("エラーが発生しました", "エラー"),
        ("오류가 발생했습니다", "오류"),
        ("sym\u200bbol soft\u00adware", "symbol software"),
    ],
)
def test_a_query_has_only_terms_of_the_text_that_it_quotes(text: str, query: str) -> None:
    """Ids, addresses, paths, dunder names and other scripts are found however they are spelled around."""
    assert set() == set(query_terms(query)) - set(terms(text))
    assert query_terms(query)


@given(ANY)
def test_the_memo_changes_nothing(text: str) -> None:
    """A warmed analyser says what a fresh one says, and what it says of the words one by one."""
    expected = Analyser().terms(text)
    assert expected == terms(text) == terms(text)
    assert expected == [term for word in text.split(" ") for term in Analyser().terms(word)]


def test_words_can_be_forgotten() -> None:
    """Nothing of them stays, and they are learned again."""
    analyser = Analyser()
    expected = analyser.terms("The DiffExecutor.run_target hashes")
    analyser.forget()
    assert (0, 0) == (len(analyser._memo), analyser._memo_bytes)  # noqa: SLF001 - what is kept is the point
    assert expected == analyser.terms("The DiffExecutor.run_target hashes")


@given(ANY)
@example("iS tHE")
def test_terms_are_bounded(text: str) -> None:
    """Terms are not empty, no longer than their bound, no function words, and few for the bytes that they come from."""
    found = terms(text)
    assert [] == [term for term in found if not 0 < len(term) <= MAX_TERM or term in STOPWORDS]
    assert len(found) <= 2 * len(text.encode()) + 2


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\b\f"), max_size=100))
def test_json_text_is_read_as_its_author_wrote_it(text: str) -> None:
    """Escapes are undone as a JSON parser undoes them, whether or not all beyond ASCII is escaped."""
    for ascii_only in (True, False):
        raw = json.dumps(text, ensure_ascii=ascii_only).encode()
        assert text == plain(raw, "application/json")[1:-1]
    assert text == plain(text.encode(), "text/plain")


def test_a_slice_of_json_is_read_as_far_as_it_goes() -> None:
    """Half an escape, a lone surrogate and half a UTF-8 sequence do no harm."""
    assert "é\ufffd \\u12" == plain(b"\\u00e9\\ud83d \\u12", "application/json")
    assert "\ufffdx" == plain("é".encode()[1:] + b"x", "text/plain")


def test_parts_can_be_turned_off() -> None:
    """The ablation's first row has plain lowercase words."""
    words = Analyser(split=False, stopwords=frozenset(), stem=False)
    assert ["the", "diffexecutor", "run_target", "hashes"] == words.terms("The DiffExecutor.run_target hashes")


def test_threads_share_an_analyser() -> None:
    """Eight threads that learn the same words at once, while the memo starts again, get what one gets."""
    draw = random.Random(5)
    texts = [
        " ".join("".join(draw.choices(string.ascii_letters, k=5)) for _ in range(MEMO_WORDS // 8)) for _ in range(16)
    ]
    expected = [Analyser().terms(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert expected * 2 == list(pool.map(Analyser().terms, texts * 2))


def test_a_blob_gives_few_terms() -> None:
    """A megabyte of base64 or hex is not a million terms."""
    blob = b64encode(random.Random(1).randbytes(750_000)).decode()
    assert len(terms(blob)) < 60_000
    assert 1 == len(terms("0f" * 500_000))


HOSTILE = {
    "capitals": "A" * 4,
    "camel": "aBcD",
    "joined": "b.c/d-",
    "marks": "\u0316\u0301",
    "ligatures": "\ufdfa ",
    "pairs": "日本",
    "escapes": "\\\\u00e9",
    "blanks": "  \n\t",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_work_is_linear(piece: str) -> None:
    """Eight times the text takes eight times the steps at most; a megabyte, whose square would never end, ends."""

    def read(times: int) -> None:
        terms(plain((piece * times).encode(), "application/json"))

    assert growth(read, 1_000, 8) < 12
    read(1_000_000 // len(piece))
