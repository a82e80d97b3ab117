"""Numbers that no double holds: found outside strings, replaced at unchanged offsets, and nothing else touched."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.errors import AmbiguousJson
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.prompt.readable import readable, without_large_numbers

numbers = st.sampled_from(
    ["0", "-0", "12", "1.50", "1e5", "-2E-9", "1e308", "1e309", "-1E+400", "0.1e400", "0e999", "9" * 308, "9" * 309,
     "1.7976931348623157e308", "1.7976931348623159e308", "0." + "0" * 320 + "1", "1e-400"],
)  # fmt: skip
strings = st.text(st.sampled_from('a"\\1e9 ,:'), max_size=8).map(json.dumps) | st.just('"1e999"')
texts = st.recursive(
    numbers | strings | st.sampled_from(["true", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.dictionaries(strings, inner, max_size=3).map(
            lambda members: "{" + " ,".join(f"{name}: {value}" for name, value in members.items()) + "}"
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(texts)
def test_it_reads_what_is_left(text: str) -> None:
    """As long as before, readable by a strict parser, and null exactly where Python's parser reads infinity."""
    raw = text.encode()
    made = without_large_numbers(raw)
    wanted = json.loads(text, parse_float=_number, parse_int=_number)
    assert len(raw) == len(made)
    assert wanted == json.loads(made, parse_int=float)
    orjson.loads(made)
    assert (made is raw) == (made == raw)


def _number(text: str) -> float | None:
    return None if float(text) in {float("inf"), float("-inf")} else float(text)


@pytest.mark.parametrize("raw", [b'{"a":1e400}', b"[-1E+309]", b"9" * 400, b'{"\\ud83d":[{"b":1e999}]}'])
def test_such_a_text_is_ambiguous(raw: bytes) -> None:
    """It is no fault of the agent's; what is read in its place is."""
    with pytest.raises(AmbiguousJson):
        load(raw, "f")
    load(readable(raw), "f")


def test_strings_of_any_length() -> None:
    """A string of a megabyte, or one that never ends, is passed over as a whole."""
    quoted = b'"' + b"\\1e999" * 200_000
    assert quoted is without_large_numbers(quoted)
    whole = b"[" + quoted + b'",1e999]'
    assert b"[" + quoted + b'",null ]' == without_large_numbers(whole)
