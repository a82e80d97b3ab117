"""JSON that is read and written again holds what it held."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.integrations import exact_json

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
def test_what_is_written_is_what_was_read(value: Any) -> None:
    """Of what Python's library writes, byte by byte."""
    text = json.dumps(value, ensure_ascii=False)

    assert value == exact_json.loads(text)
    assert text == exact_json.dumps(exact_json.loads(text))


@pytest.mark.parametrize(
    "number", ["1E400", "-1e400", "-0", "-0.0", "1.50e+02", "0.12345678901234567890123", "9" * 5_000]
)
def test_numbers_keep_their_spelling(number: str) -> None:
    """Whatever Python makes of them; a reader that refuses them is given strings."""
    text = f'{{"a": [{number}], "b": "{number}"}}'
    found = exact_json.loads(text)

    assert text == exact_json.dumps(found)
    marked = exact_json.dumps(found, marked=True)
    assert text == exact_json.dumps(exact_json.loads(marked))


def test_members_of_one_name_stay() -> None:
    """A change is one of the last, which is the value; a member that goes, goes with all of its name."""
    text = '{"a": 1, "b": 2, "a": {"c": 3}}'
    found = exact_json.loads(text)

    assert {"a": {"c": 3}, "b": 2} == found
    assert text == exact_json.dumps(found)
    found["a"]["c"], found["d"] = 4, 5
    assert '{"a": 1, "b": 2, "a": {"c": 4}, "d": 5}' == exact_json.dumps(found)
    del found["a"]
    assert '{"b": 2, "d": 5}' == exact_json.dumps(found)


@pytest.mark.parametrize("text", ["{", "[1,]", "01", ""])
def test_what_is_no_json_is_refused(text: str) -> None:
    """As by Python's library."""
    with pytest.raises(json.JSONDecodeError):
        exact_json.loads(text)
