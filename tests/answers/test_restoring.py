"""Masks in arguments that come in pieces become what they become in the whole, and only they wait."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prompt_sidecar.answers.restoring import StreamedArguments, restored
from prompt_sidecar.guard import restoring as guard
from prompt_sidecar.guard.vault import Value

VALUES = {
    "k7x2m9qa4t": Value("key", "k7x2m9qa4t", "VALUE-1", "rule", 0),
    "aaaaaaaaaa": Value("pem", "aaaaaaaaaa", 'two\nlines, "quoted" \\ and ⟦', "rule", 0),
}
MASKS = ("⟦key:k7x2m9qa4t⟧", "⟦pem:aaaaaaaaaa⟧", "⟦key:zzzzzzzzzz⟧", "⟦other:k7x2m9qa4t⟧")
SPELLED = (
    *MASKS,
    "\\u27e6key:k7x2m9qa4t\\u27e7",
    "\\u{27e6}key:k7x2m9qa4t\\u{27e7}",
    "\\u{0027E6}pem:aaaaaaaaaa\\u{27E7}",
    "%E2%9F%A6key%3Ak7x2m9qa4t%E2%9F%A7",
    "\\342\\237\\246pem:aaaaaaaaaa\\342\\237\\247",
)
WHOLE = len("\\\\\\\\342\\\\\\\\237\\\\\\\\246") + 192 + 64
"""Characters that may wait for the rest of a mask."""


def restore(tool: str, arguments: str) -> str:
    """What the guard makes of it."""
    return guard.restore(arguments.encode(), tool, ("*:*",), VALUES.get).arguments.decode()


def in_pieces(text: str, step: int) -> tuple[list[str], str]:
    """What goes on for each piece, and what comes at the end."""
    arguments = StreamedArguments("t", restore)
    return [arguments.feed(text[at : at + step]) for at in range(0, len(text), step)], arguments.rest()


words = some.one_of(
    some.sampled_from(
        [
            *SPELLED,
            "a b",
            '"',
            "\\",
            "\n",
            "{",
            "[",
            "}",
            ": ",
            ",",
            "⟦",
            "⟦key:",
            "%",
            "%e2",
            "\\u27",
            "\\u{27",
            "\x00",
            "é",
            "\U0001f511",
        ]
    ),
    some.text(max_size=3),
)
texts = some.lists(words, max_size=6).map("".join)
leaves = some.one_of(texts, texts, some.integers(), some.booleans(), some.none())


def _values(inner: Any) -> Any:
    return some.one_of(
        some.lists(inner, max_size=3),
        some.dictionaries(texts, inner, max_size=3),
        some.dictionaries(texts, inner, max_size=3).map(json.dumps),
        some.dictionaries(texts, inner, max_size=3).map(lambda value: " " + json.dumps(value, ensure_ascii=False)),
    )


values = some.recursive(leaves, _values, max_leaves=8)


@given(some.dictionaries(texts, values, max_size=4), some.booleans(), some.integers(1, 40))
def test_pieces_give_what_the_whole_gives(value: Any, escapes: bool, step: int) -> None:
    """However the text is cut, and however deep a mask stands in JSON in a string."""
    text = json.dumps(value, ensure_ascii=escapes)
    pieces, rest = in_pieces(text, step)

    assert restore("t", text) == "".join(pieces) + rest


@pytest.mark.parametrize("mask", SPELLED)
@pytest.mark.parametrize("form", ["plain", "in JSON", "in what only begins like JSON"])
def test_at_most_a_mask_waits(mask: str, form: str) -> None:
    """What is behind a mask flows as what is before it does; a value that must be escaped in JSON in a string waits."""
    inside = {
        "plain": f"a {mask} b",
        "in JSON": json.dumps({"x": mask, "y": "z" * 900}, ensure_ascii=False),
        "in what only begins like JSON": f"[INFO] {mask}",
    }
    text = json.dumps({"one": inside[form], "two": "x" * 900}, ensure_ascii=False)
    arguments, sent = StreamedArguments("t", restore), ""
    waits = form == "in JSON" and ("pem" in mask or mask.startswith("\\"))
    for taken, character in enumerate(text, 1):
        sent += arguments.feed(character)
        assert waits or taken - len(sent) < WHOLE

    assert restore("t", text) == sent + arguments.rest()


def test_what_is_cut_off_comes_as_it_is() -> None:
    """A call that ends in the middle loses nothing."""
    for text in ('{"a":"⟦key:k7x2', '{"a":"\\', '{"a":"%e2', '{"a":"{\\"b\\":\\"⟦pem:aaaaaaaaaa⟧', '{"a":"⟦'):
        pieces, rest = in_pieces(text, 1)
        assert text == "".join(pieces) + rest


def test_long_arguments_in_small_pieces_take_no_time() -> None:
    """A megabyte of JSON in a string, two characters at a time: copied for each it would never end."""
    text = json.dumps({"a": json.dumps({"b": "x" * 1_000_000, "c": MASKS[1]})}, ensure_ascii=False)
    pieces, rest = in_pieces(text, 2)

    assert restore("t", text) == "".join(pieces) + rest


def test_the_whole_is_known_afterwards() -> None:
    """For events that repeat the arguments."""
    text = json.dumps({"a": MASKS[0]}, ensure_ascii=False)
    arguments = StreamedArguments("t", restore)
    arguments.feed(text)
    arguments.rest()

    assert restore("t", text) == arguments.whole(text)
    assert arguments.whole(text + " ") is None


@pytest.mark.parametrize("piece", ["\\", "\\u27e6"], ids=["backslashes", "beginnings"])
def test_text_that_nearly_is_a_mask_is_read_once(piece: str) -> None:
    """Not from each of its characters on: that would take hours here."""
    text = '"' + piece * (1_000_000 // len(piece))
    arguments = StreamedArguments("t", lambda _, given: given)
    assert text == arguments.feed(text) + arguments.rest()
    assert not restored({"a": text.replace("u27e6", "u")}, "a", "t", restore)
