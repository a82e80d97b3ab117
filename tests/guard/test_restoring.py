"""Values in place of masks in arguments that two parsers may read differently: a text of any spelling is filled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from prompt_sidecar.guard.restoring import MOST_NAMED, allows, restore
from prompt_sidecar.guard.vault import Value
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.prompt.literals import values_of_text
from prompt_sidecar.prompt.strings import values_in, values_of

VALUE = 'two\nlines, "quoted" \\ and ⟦'
KNOWN = {"aaaaaaaaaa": Value("pem", "aaaaaaaaaa", VALUE, "rule", 0)}
MASK = "⟦pem:aaaaaaaaaa⟧"
ODD = {
    "a number that is too large": '"n": 1E400',
    "a negative one": '"n": -1e999',
    "a long one": f'"n": {"9" * 400}',
    "a member twice": '"n": 1, "n": 2',
    "twice, in other spellings": '"n": 1, "\\u006e" : 2',
    "half a character": '"n": "\\ud83d"',
    "half a character as a name": '"\\ude00": 1',
}
texts = some.text(some.characters(exclude_categories=["Cs"]) | some.sampled_from('"\\:{}[],'), max_size=6)
values: some.SearchStrategy[Any] = some.recursive(
    texts | some.integers() | some.none(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def filled(arguments: str) -> str:
    """What a call's arguments become."""
    return restore(arguments.encode(), "t", ("*:*",), KNOWN.get).arguments.decode()


@pytest.mark.parametrize(
    ("pair", "allowed"),
    [
        ("deploy:pem", True),
        ("*:pem", True),
        ("deploy:*", True),
        ("*:*", True),
        ("read:pem", False),
        ("deploy:key", False),
    ],
)
def test_only_a_tool_that_is_named_gets_a_value(pair: str, *, allowed: bool) -> None:
    """And only of the kinds that are named with it; * is all of either."""
    assert allowed == allows((pair,), "deploy", "pem")
    assert not allows((), "deploy", "pem")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("form", ['{%s, "m": "a %s b"}', '{"m": "a %s b" , %s}', '{"m": "a %s b", "m": "a %s b", %s}'])
def test_arguments_of_any_spelling(odd: str, form: str) -> None:
    """The value stands where the mask stood, in every member of that name, and no other byte changes."""
    parts = [ODD[odd], MASK] if form.startswith("{%s") else [*[MASK] * (form.count("%s") - 1), ODD[odd]]
    arguments = form % tuple(parts)
    inside = json.dumps(VALUE, ensure_ascii=False)[1:-1]

    assert arguments.replace(MASK, inside) == filled(arguments)


@pytest.mark.parametrize("odd", ODD)
def test_such_arguments_in_a_string(odd: str) -> None:
    """JSON in a string, such as the body of a request, is taken apart: the value is escaped once more."""
    body = f'{{{ODD[odd]}, "m": "{MASK}"}}'
    arguments = json.dumps({"body": body, "other": MASK}, ensure_ascii=False)
    made = json.loads(filled(arguments))

    assert body.replace(MASK, json.dumps(VALUE, ensure_ascii=False)[1:-1]) == made["body"]
    assert VALUE == made["other"]


@pytest.mark.parametrize("odd", ODD)
def test_names_stay(odd: str) -> None:
    """A mask that is a member's name is none that is filled."""
    arguments = f'{{{ODD[odd]}, "{MASK}" : "{MASK}x", "{MASK}":1}}'
    inside = json.dumps(VALUE, ensure_ascii=False)[1:-1]

    assert arguments.replace(f"{MASK}x", f"{inside}x") == filled(arguments)


@pytest.mark.parametrize("wrong", ['{"n": 1E400, "m": "%s"', '{"n": 1, "n": 2, "m": "%s",}', '{"\\ud83d" "%s"}', "%s"])
def test_what_is_no_json_stays(wrong: str) -> None:
    """Also where it begins as something that can be read."""
    assert wrong % MASK == filled(wrong % MASK)


@given(values, some.booleans(), some.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
def test_strings_are_found_as_by_a_walk(value: Any, escapes: bool, separators: tuple[str, str]) -> None:
    """Those of the text are those of the decoded value, where both can be had."""
    raw = json.dumps(value, ensure_ascii=escapes, separators=separators).encode()
    walked = [(place, text) for place, text, _ in values_of(load(raw, "text"))]

    assert walked == values_of_text(raw)
    assert walked == values_in(raw)


def test_masks_without_a_value_are_named() -> None:
    """Each once and as prompts have it, however the call spells it; those that are not allowed are none of them."""
    spelled = (
        r'{"a": "⟦key:bbbbbbbbbb⟧ \u27e6key:bbbbbbbbbb\u27e7", "b": "%E2%9F%A6pem:cccccccccc%E2%9F%A7 ' + MASK + '"}'
    )
    done = restore(spelled.encode(), "t", (), KNOWN.get)
    assert ["⟦key:bbbbbbbbbb⟧", "⟦pem:cccccccccc⟧"] == list(done.unknown_masks)
    assert (3, 1) == (done.unknown, done.not_allowed.total())


def test_as_many_masks_are_named_as_any_call_has() -> None:
    """The rest is counted: arguments may be made of masks alone."""
    many = " ".join(f"⟦pem:{number:010}⟧" for number in range(2 * MOST_NAMED))
    done = restore(json.dumps({"a": many}).encode(), "t", (), KNOWN.get)
    assert (2 * MOST_NAMED, MOST_NAMED) == (done.unknown, len(done.unknown_masks))
