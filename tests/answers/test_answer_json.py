"""JSON of providers' answers is written as JSON again."""

from __future__ import annotations

import json
import re
import sys
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.answers import answer_json
from prompt_sidecar.answers.answer_json import read, write


@pytest.mark.parametrize("half", ["", r', "half": "\ud83d"'])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "01", "+1", ".5"])
def test_what_could_not_be_written_as_json_is_not_read(number: str, half: str) -> None:
    """Neither by the fast reader nor by the one for halves of characters."""
    assert read(f'{{"a": {number}{half}}}'.encode()) is None


def test_numbers_and_halves_stay_what_they_are() -> None:
    """The reader for halves refuses no finite number."""
    whole = r'{"a":[1,2.5,1e300,-0.0],"half":"\ud83d"}'

    assert json.loads(whole) == json.loads(write(read(whole.encode())))


@pytest.mark.parametrize("half", ["", r', "half": "\ud83d"'])
def test_integers_keep_all_digits_and_numbers_that_are_too_large_are_the_largest(half: str) -> None:
    """They are JSON, and so is what is written of them."""
    digits = "9" * 25
    whole = f'{{"a":[{digits},-{digits},18446744073709551616,1e999,-1E400,{"9" * 5_000}]{half}}}'
    large = sys.float_info.max

    found = read(whole.encode())

    assert [int(digits), -int(digits), 2**64, large, -large, large] == found["a"]
    assert found == json.loads(write(found))


@given(st.text("0123456789-.ax ", max_size=60).map(str.encode), st.integers(1, 24))
def test_long_numbers_are_found_as_by_an_expression(text: bytes, at_once: int) -> None:
    """Wherever the bytes that are searched at once end."""
    with patch.object(answer_json, "_SEARCHED_AT_ONCE", at_once):
        found = answer_json._has_long_number(text)  # noqa: SLF001 - what it decides shows in large integers alone
    assert (re.search(rb"[0-9]{19}", text) is not None) == found
