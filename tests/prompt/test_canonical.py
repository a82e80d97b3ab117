"""One spelling for all that decode alike, and different ones for all that do not."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.jsontext import DIGEST_BYTES, MAX_DEPTH, PIECE_CHARACTERS, canonical, digest, identity, load
from tests.oracle import shapes
from tests.oracle.respell import SPELLINGS
from tests.prompt.bodies import chance, few, spelled, values
from tests.prompt.reading import fault
from tests.steps import steps


@pytest.mark.parametrize("name", sorted(SPELLINGS))
@few
@given(value=values, random=chance)
def test_respelled_is_the_same(name: str, value: Any, random: Random) -> None:
    """Escapes, key order, white space and numbers as other languages write them: one canonical text."""
    raw = spelled(value, random)
    assert canonical(load(raw, "f")) == canonical(load(SPELLINGS[name](raw), "f"))


@few
@given(values, values)
def test_different_values_stay_apart(one: Any, other: Any) -> None:
    """Two values have one canonical text only if they are one value, numbers read as doubles."""
    same = shapes.canonical(one) == shapes.canonical(other)
    assert same == (canonical(orjson.loads(json.dumps(one))) == canonical(orjson.loads(json.dumps(other))))


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "true"), ("0", "false"), ("null", "0"), ('"1"', "1"), ("[]", "{}"), ("[1]", "1"), ('{"a":null}', "{}"),
     ('{"a":1e400}', '{"a":null}')],
)  # fmt: skip
def test_pairs_that_are_not_the_same(one: str, other: str) -> None:
    """Values that some languages take for equal, or that a double cannot hold, are distinguished or refused."""
    found = []
    for raw in (one, other):
        try:
            found.append(canonical(load(raw.encode(), "f")))
        except Exception as error:  # noqa: BLE001 - refusing one of the two is telling them apart
            found.append(repr(error).encode())
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [("1.0", "1"), ("-0", "0"), ("-0.0", "0"), ("1e2", "100"), ("9007199254740993", "9007199254740992")],
)
def test_numbers_that_are_one_double(one: str, other: str) -> None:
    """Numbers are compared as JavaScript reads them."""
    assert canonical(load(one.encode(), "f")) == canonical(load(other.encode(), "f"))


@pytest.mark.parametrize("digits", [17, 19, 20, 21, 39, 309, 400, 5_000])
def test_long_integers(digits: int) -> None:
    """An integer of any length has a canonical text or is refused by its field; it breaks nothing."""
    raw = b'{"n":' + b"9" * digits + b"}"
    found: list[bytes] = []
    assert fault(lambda: found.append(canonical(load(raw, "f")))) in (None, "f")
    assert all(text.startswith(b'{"n":') for text in found)


def test_a_digest_has_16_bytes() -> None:
    """A digest is 16 bytes and differs where the text does."""
    assert DIGEST_BYTES == len(digest(b"a"))
    assert digest(b"a") != digest(b"b")


_LONG = st.sampled_from(["x", "é", "漢", "🙂", '"', "\\", "\n", "\x7f", "\u2028"]).map(
    lambda unit: unit * (PIECE_CHARACTERS + 5)
)


@few
@given(
    st.recursive(
        values | _LONG, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )
)
def test_an_identity_is_the_digest_of_the_canonical_text(value: Any) -> None:
    """Of long strings too, which are not written as a whole."""
    value = orjson.loads(json.dumps(value))
    assert digest(canonical(value)) == identity(value)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_long_string_is_refused_from_the_same_depth_on(opening: str) -> None:
    """Where the canonical text cannot be written, there is no identity."""
    closing = "]" if opening == "[" else "}"
    for inner in ("1", orjson.dumps("x" * (PIECE_CHARACTERS + 1)).decode()):
        for depth in (MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1):
            value = orjson.loads(opening * depth + inner + closing * depth)
            if depth <= MAX_DEPTH:
                assert DIGEST_BYTES == len(identity(value))
            else:
                with pytest.raises(InvalidJson):
                    identity(value)


def test_an_identity_costs_the_same_however_deep_a_long_string_is() -> None:
    """Each part is looked at a few times, and not once for each level that it is in."""

    def identify(depth: int) -> None:
        value: Any = [*range(2_000), "x" * (PIECE_CHARACTERS + 1)]
        for _ in range(depth):
            value = [value]
        identity(value)

    assert steps(lambda: identify(80), "prompt") < 1.2 * steps(lambda: identify(20), "prompt")
