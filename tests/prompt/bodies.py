"""Request bodies in every lawful spelling: members in any order, white space anywhere, any JSON in any place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['":', ":", '\\":', "\\", '\\"', '{"a":1}', "é", "\u2028", "日本語", "🙂", "a\\", "messages", "\x7f", "\n"]
)
"""Strings with a taste for what looks like JSON."""

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)

few = settings(max_examples=60)
"""Examples of tests whose bodies are costly to draw."""

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value."""

messages: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": texts}, optional={"x": values}
)
"""Objects that look like messages; splitting asks no more of them than that they are JSON."""

names = texts.filter(lambda name: name != "messages" and "." not in name) | st.sampled_from(
    ["model", "tools", "system", "max_tokens"]
)


_SPACES = (b"", b"", b"", b" ", b"\n", b"\t\r\n ", b"  ")
chance = st.integers(0, 2**32).map(Random)
"""A source of chance for what need not shrink: white space and escapes."""


def spelled(value: Any, random: Random) -> bytes:
    """A value as JSON, with white space wherever it may be and escapes or not."""
    if isinstance(value, dict):
        members = [
            _spaced(spelled(name, random), random) + b":" + _spaced(spelled(member, random), random)
            for name, member in value.items()
        ]
        return b"{" + (b",".join(members) or random.choice(_SPACES)) + b"}"
    if isinstance(value, list):
        elements = [_spaced(spelled(element, random), random) for element in value]
        return b"[" + (b",".join(elements) or random.choice(_SPACES)) + b"]"
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode()


def _spaced(raw: bytes, random: Random) -> bytes:
    return random.choice(_SPACES) + raw + random.choice(_SPACES)


@dataclass(frozen=True, slots=True)
class Body:
    """A body in pieces, so that a test can change one and put it together again."""

    fields_before: tuple[tuple[bytes, bytes], ...]
    """Raw names and values of the members that stand before the messages."""
    fields_after: tuple[tuple[bytes, bytes], ...]
    messages: tuple[bytes, ...]
    gap: bytes
    is_object: bool

    @property
    def raw(self) -> bytes:
        """The body."""
        array = b"[" + self.gap + (self.gap + b"," + self.gap).join(self.messages) + self.gap + b"]"
        if not self.is_object:
            return self.gap + array + self.gap
        members = [
            name + self.gap + b":" + self.gap + value
            for name, value in (*self.fields_before, (b'"messages"', array), *self.fields_after)
        ]
        return self.gap + b"{" + self.gap + (self.gap + b"," + self.gap).join(members) + self.gap + b"}" + self.gap


@st.composite
def bodies(draw: st.DrawFn, elements: st.SearchStrategy[Any] = messages, most: int = 5) -> Body:
    """A body, or a bare message array."""
    written = draw(st.lists(elements, min_size=1, max_size=most))
    fields = draw(st.dictionaries(names, values, max_size=3))
    random = draw(chance)
    members = [(spelled(name, random), spelled(value, random)) for name, value in fields.items()]
    cut = draw(st.integers(0, len(members)))
    return Body(
        tuple(members[:cut]),
        tuple(members[cut:]),
        tuple(spelled(message, random) for message in written),
        random.choice(_SPACES),
        draw(st.booleans()),
    )


def decoded(raw: bytes) -> tuple[Sequence[Any], dict[str, Any]]:
    """The slow twin of a split: the messages and the other members, by the standard library."""
    value = json.loads(raw)
    if isinstance(value, list):
        return value, {}
    fields = dict(value)
    return fields.pop("messages"), fields
