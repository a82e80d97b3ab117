"""Kinds of values: what each accepts, what it rejects, and how it is shown; and the declaration of a setting."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prompt_sidecar.values import (
    Kind,
    Setting,
    address,
    byte_count,
    choice,
    declared,
    hosts,
    is_loopback,
    number,
    seconds,
    secret,
    setting,
    split_address,
    switch,
    text,
    texts,
    url,
    whole,
)

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.lists(st.integers() | st.text(max_size=9))
)
KINDS = [
    whole(1, 256),
    number(0.0, 1.0),
    byte_count(1_024, 1 << 30),
    seconds(0, 3_600),
    text(107),
    choice("a", "b"),
    address(),
    secret(16),
    switch(),
    texts(3, 9),
    hosts(3),
    url(),
]


@pytest.mark.parametrize(
    ("kind", "given_value", "expected"),
    [
        (whole(1, 9), "7", 7),
        (whole(1, 9), 9, 9),
        (number(0, 1), "0.25", 0.25),
        (number(0, 1), 1, 1.0),
        (byte_count(0, 1 << 40), "64MiB", 64 << 20),
        (byte_count(0, 1 << 40), "1.5 kib", 1_536),
        (byte_count(0, 1 << 40), "64MB", 64_000_000),
        (byte_count(0, 1 << 40), "512", 512),
        (byte_count(0, 1 << 40), 512, 512),
        (seconds(0, 1e9), "60m", 3_600.0),
        (seconds(0, 1e9), "500ms", 0.5),
        (seconds(0, 1e9), "1.5h", 5_400.0),
        (seconds(0, 1e9), 2.5, 2.5),
        (address(), "[::1]:0", "[::1]:0"),
        (address(), "", ""),
        (secret(16), " 0123456789abcdef ", "0123456789abcdef"),
        (switch(), "True", True),
        (switch(), False, False),
        (texts(3, 9), ["a", "b"], ("a", "b")),
        (hosts(3), ["10.1.2.3", "fd00::7", "[fd00::7]"], ("10.1.2.3", "fd00::7", "[fd00::7]")),
        (hosts(3), "a_b.example.", ("a_b.example.",)),
        (texts(3, 9), '["a", "b"]', ("a", "b")),
        (texts(3, 9), "a, b", ("a, b",)),
        (texts(3, 9), "[error]", ("[error]",)),
        (texts(3, 9), "[]", ()),
        (texts(3, 9), "7", ("7",)),
        (url(), "http://127.0.0.1:4317", "http://127.0.0.1:4317"),
        (url(), "https://collector.example/otlp", "https://collector.example/otlp"),
        (url(), "", ""),
    ],
)
def test_values_with_and_without_units_are_read(kind: Kind, given_value: object, expected: object) -> None:
    """Values are read with and without units, as text and as numbers."""
    assert expected == kind.read(given_value)


@pytest.mark.parametrize(
    ("kind", "given_value"),
    [
        (whole(1, 9), "0"),
        (whole(1, 9), True),
        (whole(1, 9), 2.0),
        (whole(1, 9), "9" * 5_000),
        (number(0, 1), "nan"),
        (number(0, 1), "inf"),
        (byte_count(0, 100), "1.5"),
        (byte_count(0, 100), "5 parsecs"),
        (byte_count(0, 100), "-1"),
        (byte_count(0, 100), float("inf")),
        (seconds(0, 10), "11s"),
        (seconds(0, 10), float("nan")),
        (text(5), "äää"),
        (text(5), "a\nb"),
        (address(), "localhost"),
        (address(), "a:b:1"),
        (address(), "h:65536"),
        (secret(16), "too short"),
        (switch(), "yes"),
        (switch(), 1),
        (texts(3, 9), ""),
        (hosts(3), "https://a.example"),
        (hosts(3), "a.example:80"),
        (hosts(3), "*.example"),
        (hosts(3), "a" * 254),
        (hosts(3), ["a", "b", "c", "d"]),
        (texts(3, 9), ["a", ""]),
        (texts(3, 9), ["a", 7]),
        (texts(3, 9), "[7]"),
        (texts(3, 9), '["a"'),
        (texts(3, 9), "['a']"),
        (texts(3, 9), "["),
        (texts(3, 9), "[" * 9_000),
        (texts(3, 9), ["a"] * 4),
        (texts(3, 9), ["0123456789"]),
        (texts(3, 9), ["\ud800"]),
        (texts(3, 9), "\ud800"),
        (url(), "127.0.0.1:4317"),
        (url(), "grpc://127.0.0.1:4317"),
        (url(), "http://"),
        (url(), "http://h:99999"),
        (url(), "http://user:password@h"),
        (url(), 4317),
    ],
)
def test_values_out_of_bounds_are_refused(kind: Kind, given_value: object) -> None:
    """Values out of bounds or of another kind raise ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  # the caller writes the message
        kind.read(given_value)


@given(ANYTHING)
@example(-0.0)
def test_kinds_accept_or_reject(value: object) -> None:
    """Any value is either read or refused with ValueError; what is read is shown as TOML that reads the same."""
    for kind in KINDS:
        try:
            read = kind.read(value)
        except ValueError:
            continue
        shown = kind.show(read)
        if not kind.secret:
            again = kind.read(_toml(shown))
            assert read == (pytest.approx(again) if isinstance(again, float) else again)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), max_size=3))
def test_lists_are_shown_as_toml(value: list[str]) -> None:
    """Whatever a list of texts holds, what is shown of it says the same, in a file and in the environment."""
    kind = texts(3, 9)
    assert tuple(value) == kind.read(_toml(kind.show(value)))
    assert tuple(value) == kind.read(kind.show(value))


def _toml(shown: str) -> object:
    import tomllib

    return tomllib.loads(f"value = {shown}")["value"]


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (True, "127.0.0.1:1"),
        (True, "127.9.9.9:1"),
        (True, "[::1]:1"),
        (True, "localhost:1"),
        (False, "0.0.0.0:1"),
        (False, "[::]:1"),
        (False, "10.0.0.1:1"),
        (False, "example.org:1"),
    ],
)
def test_only_this_machines_addresses_are_loopback(expected: bool, value: str) -> None:
    """Only addresses of this machine count as loopback; a name that could be anything does not."""
    assert expected == is_loopback(value)


def test_addresses_are_split() -> None:
    """Host and port come apart, an IPv6 host without its brackets."""
    assert [("::1", 80), ("h", 0)] == [split_address("[::1]:80"), split_address("h:0")]


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64])
def test_names_that_no_host_has(host: str) -> None:
    """The resolver would raise an error that is no OSError, in the middle of a start or of a probe."""
    for kind, value in ((address(), f"{host}:1"), (url(), f"http://{host}:1/v1")):
        with pytest.raises(ValueError, match="idna"):
            kind.check(value)


@dataclass(frozen=True, slots=True)
class Some:
    """Settings as a room declares them, beside a field that is none."""

    size: int = setting(4, whole(1, 9, "calls"), "Calls.", "Four is a good number.", advanced=True)
    other: int = 7


def test_a_declaration_is_read_from_the_field() -> None:
    """The default is the field's too; a field without a declaration is no setting."""
    assert (4, 7) == (Some().size, Some().other)
    (found,) = declared(Some).items()
    assert ("size", Setting(4, found[1].kind, "Calls.", "Four is a good number.", advanced=True)) == found
    assert ("4", "a whole number of calls from 1 to 9") == (found[1].shown_default, found[1].kind.accepted)


@pytest.mark.parametrize("kind", [whole(1, 9), number(0, 1), byte_count(0, 9), seconds(0, 9)])
def test_text_is_no_number(kind: Kind) -> None:
    """What a file may write as text, a typed value may not: a check takes numbers only."""
    for wrong in ("1", "1s", None, True, [1]):
        with pytest.raises(ValueError):  # noqa: PT011  # as above
            kind.check(wrong)
    assert kind.check(1) == kind.read(1)


class Colour(StrEnum):
    """Some choices."""

    RED = "red"


def test_a_choice_of_an_enum_gives_its_member() -> None:
    """Code compares members by identity."""
    assert choice(*Colour).check("red") is Colour.RED
