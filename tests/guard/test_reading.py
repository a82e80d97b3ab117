"""Text as a person reads it: places stay, codes are what they stand for, joints are gone, and the work is linear."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.guard.options import ENFORCE, GuardOptions
from prompt_sidecar.guard.reading import joined, read
from prompt_sidecar.guard.rules import default_rules
from tests.guard.planting import named

_RULES = default_rules(GuardOptions(ENFORCE))
_VALUE = named(random.Random(11))
_PIECES = ["\\n", "\\u003d", '\\\\"', "%3D", "%22", "&quot;", "&#61;", "\x1b[31m", "é", "a", "=", '"', "\n", "+", " "]


@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_a_reading_is_as_long_as_its_text(text: str) -> None:
    """Each place in a reading is the same place in its text, in bytes and in characters."""
    data = text.encode()
    seen = read(data)
    assert (len(data), len(text)) == (len(seen), len(seen.decode()))


@given(st.lists(st.sampled_from(_PIECES)).map("".join))
def test_a_joined_text_leads_back(text: str) -> None:
    """Each character of a text without joints is the one at its place in the text with them."""
    without = joined(text)
    if without is not None:
        assert list(without.text) == [text[without.place(at)] for at in range(len(without.text))]


@pytest.mark.parametrize(
    "text",
    [
        f"\x1b[1mDB_PASSWORD\x1b[0m=\x1b[32m{_VALUE}\x1b[0m",
        f'INFO body={{\\"password\\":\\"{_VALUE}\\"}} status=200',
        f"ref=1%26db_password%3D{_VALUE}%26page%3D2",
        f"<pre>{{&quot;password&quot;: &quot;{_VALUE}&quot;}}</pre>",
        f"PASSWORD={_VALUE[:9]}\\\n{_VALUE[9:]}",
        f'PASSWORD = (\n    "{_VALUE[:9]}"\n    "{_VALUE[9:]}"\n)',
        base64.b64encode(f"user=app\npassword={_VALUE}\nport=80\n".encode()).decode(),
    ],
)
def test_a_value_behind_codes_is_found(text: str) -> None:
    """One value is found in each of these, and where it begins is where it stands."""
    finds = _RULES.scan([text])[0]
    assert 1 == len(finds)
    assert _VALUE[:9] in text[finds[0].start :][: len(_VALUE)] or finds[0].rule.name == "base64_secret"


@pytest.mark.parametrize(
    "piece", ["password=", "%22key%22%3A", "\\\\\\\\", '"\n"', "token: a1b2c3d4 ", "\x1b[", "QUFB"]
)
def test_hostile_text_costs_linear_time(piece: str) -> None:
    """A megabyte of what begins a code, a joint or a name and goes on without end: its square would never end."""
    _RULES.scan([piece * (1_000_000 // len(piece))])
