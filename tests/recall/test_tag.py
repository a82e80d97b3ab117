"""The tagged line: known again when it comes back as it went out, and only then."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.recall.tag import HEADLINE_CHARACTERS, AnswerKind, RecognisedAnswer, recognise, tagged
from prompt_sidecar.trim.ids import run_key

KEY = run_key(b"key", "caller", "run-1")
ID = "ab3dq7ghjk"
HEADLINE = "bytes 0-16,000 of 48,210, lines 1-400 of 1,200; more follows at offset 16000"

kinds = st.sampled_from(AnswerKind)
bodies = st.one_of(st.text(max_size=200), st.text(alphabet="ab \t\r\n]=[;", max_size=60))
headlines = st.one_of(st.text(max_size=80), st.just("x; tag=aaaaaaaaaaaaaaaa]"), st.just(HEADLINE))


def _id(kind: AnswerKind) -> str:
    return ID if kind is AnswerKind.RECALLED else ""


def test_the_first_line_of_an_answer() -> None:
    """The line says kind, id and range, and ends with the tag: another form would orphan what prompts hold."""
    expected = f"[recalled id={ID}: {HEADLINE}; tag=z5nksnegzj5mq2jr]\nline one\nline two"
    assert expected == tagged(KEY, AnswerKind.RECALLED, ID, HEADLINE, "line one\nline two")


@given(kinds, headlines, bodies)
def test_recognised_as_it_went_out(kind: AnswerKind, headline: str, body: str) -> None:
    """Whatever the headline and the body hold, the answer is known again, in one line and the body."""
    text = tagged(KEY, kind, _id(kind), headline, body)
    assert RecognisedAnswer(kind, _id(kind)) == recognise(KEY, text)
    line, _, rest = text.partition("\n")
    assert line.isprintable()
    assert body == rest


@given(kinds, headlines, bodies, st.text(alphabet=" \t\r\n\x0b\x0c\u2028\u00a0", max_size=8))
def test_what_agents_do_to_ends(kind: AnswerKind, headline: str, body: str, pad: str) -> None:
    """Stripped or padded at the end, and with other line ends, it is still known."""
    text = tagged(KEY, kind, _id(kind), headline, body)
    for changed in (text + pad, text.rstrip(), text.replace("\n", "\r\n"), text.replace("\r\n", "\n")):
        assert RecognisedAnswer(kind, _id(kind)) == recognise(KEY, changed)


@given(kinds, headlines, bodies, st.data())
def test_any_other_change_makes_it_ordinary(kind: AnswerKind, headline: str, body: str, data: st.DataObject) -> None:
    """A character more, fewer or another, anywhere, is not forgiven."""
    text = tagged(KEY, kind, _id(kind), headline, body).rstrip()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ab]\0 \u200b").filter(lambda character: character != text[place]))
    assert recognise(KEY, text[:place] + other + text[place + 1 :]) is None or not other.strip()
    assert recognise(KEY, text[:place] + "x" + text[place:]) is None
    assert recognise(KEY, text + "x") is None
    assert recognise(KEY, "x" + text) is None
    if text[place] != "\r":
        shorter = text[:place] + text[place + 1 :]
        assert recognise(KEY, shorter) is None or shorter.rstrip() == text


def test_nothing_moves_between_the_parts() -> None:
    """A word of the headline cannot go behind the line, nor a body into it, nor one kind pass for another."""
    text = tagged(KEY, AnswerKind.NOTICE, "", "one two", "")
    tag = text[text.index("; tag=") :]
    assert RecognisedAnswer(AnswerKind.NOTICE, "") == recognise(KEY, text)
    for moved in (
        f"[notice: one{tag} two",
        f"[notice: one{tag}\n two",
        f"[found: one two{tag}",
        f"[tasks: one two{tag}",
    ):
        assert recognise(KEY, moved) is None
    assert recognise(KEY, f"[recalled id={ID}: one two{tag}") is None
    assert recognise(KEY, f"[recalled: one two{tag}") is None
    assert recognise(KEY, text + " " * 2_000 + "\nother") is None


def test_only_for_its_run() -> None:
    """The tag of another run, caller or key is none."""
    text = tagged(KEY, AnswerKind.FOUND, "", "1 of 1 matching items shown", "body")
    others = [run_key(*names) for names in product((b"key", b"yek"), ("caller", "other"), ("run-1", "run-2"))]
    assert [KEY] == [key for key in others if recognise(key, text)]


def test_ordinary_text_is_ordinary() -> None:
    """What merely begins as an answer does is none."""
    tag = "a" * 16
    for text in (
        "", "[", "[recalled", f"[recalled: x; tag={tag}]", f"[recalled id={ID}: x; tag={tag}]", f"[found: ; tag={tag}]",
        f"[notice: x; tag={tag.upper()}]", f"[tasks: x; tag=é{tag[1:]}]", f"[other: x; tag={tag}]",
        f"[recalled id={ID.upper()}: x; tag={tag}]", f"[found: \ud800; tag={tag}]\n\udfff",
    ):  # fmt: skip
        assert recognise(KEY, text) is None


@pytest.mark.parametrize(
    ("kind", "stash_id"),
    [
        (AnswerKind.RECALLED, ""), (AnswerKind.RECALLED, "made up"), (AnswerKind.RECALLED, ID + "\n"),
        (AnswerKind.FOUND, ID), (AnswerKind.NOTICE, "x"),
    ],
)  # fmt: skip
def test_no_line_with_a_wrong_id(kind: AnswerKind, stash_id: str) -> None:
    """Only what is recalled has an id, and it is one of ours."""
    with pytest.raises(ValueError, match="has an id of ours"):
        tagged(KEY, kind, stash_id, "x", "")


def test_a_long_headline_is_cut() -> None:
    """The line has a bound, within which it is known again."""
    text = tagged(KEY, AnswerKind.RECALLED, ID, "x" * 10_000, "body")
    assert len(text) < HEADLINE_CHARACTERS + 100
    assert RecognisedAnswer(AnswerKind.RECALLED, ID) == recognise(KEY, text)


def test_time_is_linear() -> None:
    """Megabytes that look hostile are read: their square would take hours."""
    line = tagged(KEY, AnswerKind.FOUND, "", "x", "").rstrip("]")
    for text in (
        "[found: " + "; tag=" * 500_000, line + "]" + "\r" * 3_000_000 + "x", line + "]" + "\r\n" * 1_000_000 + "x",
        line + "]" + " \n" * 1_000_000 + "x", "[recalled" * 300_000,
    ):  # fmt: skip
        assert recognise(KEY, text) is None
