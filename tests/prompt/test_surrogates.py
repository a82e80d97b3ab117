"""Half characters in JSON text are found wherever they stand, and bodies that hold them are split all the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt import surrogates
from prompt_sidecar.prompt.body import split
from prompt_sidecar.prompt.surrogates import lone_surrogates, without_lone_surrogates

_SLOW = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.", re.DOTALL
)
pieces = st.sampled_from(
    [b"\\ud83d", b"\\uDE00", b"\\\\", b"u", b"d83d", b"x", b"\\n", b"\\uD8FF", b"\\u0041", b"\\udc00", "🙂".encode()]
)


def slow(raw: bytes) -> list[int]:
    """The slow twin: every escape of the text in turn, pairs taken together."""
    return [found.start() for found in _SLOW.finditer(raw) if len(found.group()) == len(b"\\ud83d")]


@pytest.mark.parametrize("at_once", [7, 10, 13, 1_048_576])
@given(st.lists(pieces, max_size=12))
def test_finds_what_the_slow_twin_finds(at_once: int, parts: list[bytes]) -> None:
    """Whatever stands around them, and wherever a stretch that is searched ends."""
    raw = b'"' + b"".join(parts) + b'"'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogates, "_AT_ONCE", at_once)
        assert slow(raw) == list(lone_surrogates(raw))
        whole = without_lone_surrogates(raw)
    assert len(whole) == len(raw)
    assert [] == slow(whole)
    assert (whole is raw) == (not slow(raw))


def test_a_body_is_split() -> None:
    """In messages, other members and their names; offsets are those of the body that was sent."""
    raw = rb'{"\ud800k":1,"model":"\udc00","messages":[{"a":"\ud83d"},"\ud83d\ude00"],"tools":["\ud83d"]}'
    found = split(raw)
    assert [rb'{"a":"\ud83d"}', rb'"\ud83d\ude00"'] == [found.message(0), found.message(1)]
    assert rb'["\ud83d"]' == found.field("tools")
    assert rb'"\udc00"' == found.field("model")
    longer = split(raw.replace(rb'"\ud83d\ude00"]', rb'"\ud83d\ude00",{"b":"\ud83d"}]'), found)
    assert 2 == longer.same
    assert rb'{"b":"\ud83d"}' == longer.message(2)
