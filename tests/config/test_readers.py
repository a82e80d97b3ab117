"""Readers of setting values: what each accepts, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prompt_sidecar.config.readers import (
    Reader,
    address,
    byte_count,
    choice,
    number,
    seconds,
    secret,
    switch,
    text,
    texts,
    url,
    whole,
)
from prompt_sidecar.server.options import is_loopback, split_address

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.lists(st.integers() | st.text(max_size=9))
)
READERS = [
    whole(1, 256),
    number(0.0, 1.0),
    byte_count(1_024, 1 << 30),
    seconds(0, 3_600),
    text(107),
    choice("a", "b"),
    address(),
    secret(),
    switch(),
    texts(3, 9),
    url(),
]


@pytest.mark.parametrize(
    ("reader", "given_value", "expected"),
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
        (secret(), " 0123456789abcdef ", "0123456789abcdef"),
        (switch(), "True", True),
        (switch(), False, False),
        (texts(3, 9), ["a", "b"], ("a", "b")),
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
def test_accepted(reader: Reader, given_value: object, expected: object) -> None:
    """Values are read with and without units, as text and as numbers."""
    assert expected == reader.read(given_value)


@pytest.mark.parametrize(
    ("reader", "given_value"),
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
        (secret(), "too short"),
        (switch(), "yes"),
        (switch(), 1),
        (texts(3, 9), ""),
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
def test_refused(reader: Reader, given_value: object) -> None:
    """Values out of bounds or of another kind raise ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  # the reader's caller writes the message
        reader.read(given_value)


@given(ANYTHING)
@example(-0.0)
def test_readers_accept_or_refuse(value: object) -> None:
    """Any value is either read or refused with ValueError; what is read is shown as TOML that reads the same."""
    for reader in READERS:
        try:
            read = reader.read(value)
        except ValueError:
            continue
        shown = reader.show(read)
        if not reader.secret:
            again = reader.read(_toml(shown))
            assert read == (pytest.approx(again) if isinstance(again, float) else again)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9), max_size=3))
def test_lists_are_shown_as_toml(value: list[str]) -> None:
    """Whatever a list of texts holds, what is shown of it says the same, in a file and in the environment."""
    reader = texts(3, 9)
    assert tuple(value) == reader.read(_toml(reader.show(value)))
    assert tuple(value) == reader.read(reader.show(value))


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
def test_loopback(expected: bool, value: str) -> None:
    """Only addresses of this machine count as loopback; a name that could be anything does not."""
    assert expected == is_loopback(value)


def test_addresses_are_split() -> None:
    """Host and port come apart, an IPv6 host without its brackets."""
    assert [("::1", 80), ("h", 0)] == [split_address("[::1]:80"), split_address("h:0")]
