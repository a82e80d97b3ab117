"""JSON of providers' answers is written as JSON again."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.serving.answer_json import read, write


@pytest.mark.parametrize("half", ["", r', "half": "\ud83d"'])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_what_could_not_be_written_as_json_is_not_read(number: str, half: str) -> None:
    """Neither by the fast reader nor by the one for halves of characters."""
    assert read(f'{{"a": {number}{half}}}'.encode()) is None


def test_numbers_and_halves_stay_what_they_are() -> None:
    """The reader for halves refuses no finite number."""
    whole = r'{"a":[1,2.5,1e300,-0.0],"half":"\ud83d"}'

    assert json.loads(whole) == json.loads(write(read(whole.encode())))
