"""Texts that are decoded in pieces, against a decoder that is given them whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.errors import AmbiguousJson, InvalidJson
from prompt_sidecar.prompt import jsontext, long_strings, structure
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.prompt.long_strings import decode_in_pieces
from prompt_sidecar.prompt.structure import Shape, shape
from tests.prompt.bodies import chance

PIECE = 65_536
"""Bytes that are decoded at once, here."""
SIZE = 6 * PIECE
"""Bytes of a long string."""
LONG = {
    "letters": b"a" * SIZE,
    "quoted JSON": b'{\\"a\\": \\"b\\\\n\\"}, ' * (SIZE // 20),
    "CJK": "漢字の結果。".encode() * (SIZE // 18),
    "escapes": b"\\u6f22" * (SIZE // 6),
    "pairs of escapes": b"\\ud83d\\ude42" * (SIZE // 12),
    "backslashes": b"\\\\" * (SIZE // 2),
    "an odd number of them first": b"a\\n" + b"\\\\" * (SIZE // 2),
    "emoji": "🙂".encode() * (SIZE // 4),
}
PLACES: dict[str, Callable[[bytes], bytes]] = {
    "alone": lambda inside: b'"%b"' % inside,
    "in a message": lambda inside: b'{"role": "tool", "content": "%b", "id": "1"}' % inside,
    "in parts": lambda inside: b'[1, {"parts": [{"text": "x"}, {"text": "ab%bcd"}]}, null]' % inside,
    "twice": lambda inside: b'{"a": "%b", "b": ["%b", "c"]}' % (inside, inside),
}


class Decoder:
    """`orjson`, with a note of what it is given."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def loads(self, raw: bytes | memoryview) -> Any:
        """Decode, and note the size."""
        self.sizes.append(len(raw))
        return orjson.loads(raw)

    def __getattr__(self, name: str) -> Any:
        """All else is the library's."""
        return getattr(orjson, name)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of these tests are long."""
    monkeypatch.setattr(long_strings, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(long_strings, "LEAST_BYTES", 2 * PIECE)
    monkeypatch.setattr(structure, "WINDOW", PIECE // 8)
    monkeypatch.setattr(jsontext, "WRITTEN_BYTES", PIECE)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("inside", LONG)
def test_no_decoder_gets_a_long_string_whole(inside: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it holds and wherever it is, other threads can run after each piece."""
    raw = PLACES[place](LONG[inside])
    expected, decoder = orjson.loads(raw), Decoder()
    monkeypatch.setattr(long_strings, "orjson", decoder)
    monkeypatch.setattr(jsontext, "orjson", decoder)

    assert expected == load(memoryview(raw), "f")
    assert max(decoder.sizes) < 2 * PIECE
    assert len(decoder.sizes) > 2


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (b"\x00", InvalidJson),
        (b"\xe6\xbc", InvalidJson),
        (b"\\x", InvalidJson),
        (b"\\ud83d", AmbiguousJson),
        (b"\\ude42\\ud83d", AmbiguousJson),
    ],
)
def test_what_is_wrong_in_a_long_string_is_reported_as_elsewhere(wrong: bytes, kind: type[InvalidJson]) -> None:
    """Error and position are those of the whole text."""
    raw = PLACES["in a message"](LONG["letters"] + wrong + LONG["letters"])
    with pytest.raises(orjson.JSONDecodeError) as expected:
        orjson.loads(raw)
    with pytest.raises(kind, match=f"at byte {expected.value.pos}$"):
        load(raw, "f")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"a": "%b", "a": 1}', AmbiguousJson),
        (b'{"a": "%b"', InvalidJson),
        (b'{"a": "%b}', InvalidJson),
        (b'\\"%b\\"', InvalidJson),
    ],
)
def test_what_is_wrong_around_a_long_string(raw: bytes, kind: type[InvalidJson]) -> None:
    """It is refused as without one."""
    with pytest.raises(kind):
        load(raw % LONG["letters"], "f")


def test_a_long_name() -> None:
    """What is within a name is decoded whole, as other threads wait for that at most a hundredth of a second."""
    raw = b'{"%b": "%b"}' % (LONG["letters"], LONG["CJK"])
    assert orjson.loads(raw) == load(raw, "f")


_TOKENS = ("a", "bc", "é", "漢", "🙂", "\\n", "\\\\", '\\"', "\\u0041", "\\ud83d\\ude42", "\\uD83D\\uDE42", "\\\\" * 9)
_WRONG = ("", '"', "\\", "\x00", "\\ude42", "\\ud83d")


def _string(random: Random, size: int) -> str:
    """A string of so many tokens of a few kinds, so that some have no place to cut for long."""
    return '"' + "".join(random.choices(random.sample(_TOKENS, random.randint(1, 6)), k=size)) + '"'


@settings(max_examples=300)
@given(st.sampled_from([8, 16, 40]), st.sampled_from([32, 64]), chance)
def test_any_text_is_decoded_as_by_the_library(window: int, piece: int, random: Random) -> None:
    """With windows and pieces so small that any escape may be at a cut; a damaged text is decoded by neither."""
    strings = [_string(random, random.choice([1, 10, 200])) for _ in range(random.randint(1, 4))]
    text = random.choice(["[%s]", '{"a":1,"b":[%s]}']) % ",".join(strings)
    if random.random() < 0.3:
        at = random.randrange(len(text))
        text = text[:at] + random.choice(_WRONG) + text[at + 1 :]
    raw = text.encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structure, "WINDOW", window)
        patched.setattr(long_strings, "PIECE_BYTES", piece)
        patched.setattr(long_strings, "LEAST_BYTES", 1)
        patched.setattr(long_strings, "_SEARCHED", 8)
        found = decode_in_pieces(raw, shape(raw).within)
    try:
        expected = orjson.loads(raw)
    except orjson.JSONDecodeError:
        expected = None
    if found is not None:
        assert json.dumps(expected) == json.dumps(found)


def test_what_is_within_a_string_is_found() -> None:
    """Window by window, one range for each string that fills windows, whatever comes between."""
    window = structure.WINDOW
    string = b'"' + b"a" * 4 * window + b'"'
    found = shape(b"[" + string + b"," + b" " * 2 * window + string + b"]")

    assert Shape(1, 0, 1, 0, 2, found.within) == found
    assert [3 * window, 3 * window] == [len(each) for each in found.within]
