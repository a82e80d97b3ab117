"""Clipped arguments: long strings become labels, everything else is as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.elide import ARGUMENTS_CHARACTERS, LEAF_CHARACTERS, clipped_arguments, placeholder

ID = "abcdefghjk"
LONG = "line of a file\n" * 30
LABEL = placeholder(ItemKind.TEXT, ID, len(LONG))

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=12) | st.builds(lambda text: text * 130, st.text(min_size=1, max_size=3))
values = st.recursive(
    leaves | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def clipped(text: str) -> str | None:
    """Clipped JSON arguments."""
    return clipped_arguments(text, ID, free_text=False)


def expected(value: Any) -> Any:
    """The slow way: every long string of a value replaced, by recursion."""
    if isinstance(value, str) and len(value) > LEAF_CHARACTERS:
        return placeholder(ItemKind.TEXT, ID, len(value.encode(errors="surrogatepass")))
    if isinstance(value, dict):
        return {key: expected(member) for key, member in value.items()}
    return [expected(member) for member in value] if isinstance(value, list) else value


@given(values, st.booleans(), st.sampled_from([None, 2]))
def test_as_by_recursion(value: Any, escaped: bool, indent: int | None) -> None:
    """The same shape and short leaves, however the agent spells it; clipping again changes nothing."""
    shown = clipped(json.dumps(value, ensure_ascii=escaped, indent=indent))
    if shown is None:
        assert len(json.dumps(expected(value), ensure_ascii=escaped, indent=indent)) > ARGUMENTS_CHARACTERS
        return
    assert expected(value) == json.loads(shown)
    assert shown == clipped(shown)


def test_paths_and_commands_stay() -> None:
    """A file that was written leaves its path, its options and a label; spaces and numbers are spelled as they were."""
    text = f'{{ "path": "src/a.py",\t"mode":0.10, "big":123456789012345678901, "content":{json.dumps(LONG)}}}'
    assert text.replace(json.dumps(LONG), f'"{LABEL}"') == clipped(text)


def test_keys_stay() -> None:
    """A long key is part of the shape."""
    text = json.dumps({"k" * 200: LONG})
    assert text.replace(json.dumps(LONG), f'"{LABEL}"') == clipped(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        '{"path": "src/a.py"',
        '{"path": NaN}',
        "[" * 100_000 + "]" * 100_000,
        json.dumps([f"name_{number}" for number in range(1_000)]),
        "1" * 5_000,
    ],
    ids=["nothing", "words", "cut off", "no number", "deep", "many", "digits"],
)
def test_what_becomes_empty(text: str) -> None:
    """No JSON, or too much of it even without long strings."""
    assert clipped(text) is None


def test_moderately_deep() -> None:
    """A hundred levels are kept as they are."""
    text = '{"a":' * 100 + json.dumps(LONG) + "}" * 100
    assert text.replace(json.dumps(LONG), f'"{LABEL}"') == clipped(text)


def test_lone_surrogates() -> None:
    """Half a pair stays in a short string as it was spelled, and is counted in a long one."""
    long = "\\ud83d" * 130
    shown = clipped(f'{{"short": "\\ud83d", "long": "{long}"}}')
    assert shown is not None
    assert '"short": "\\ud83d"' in shown
    assert "390 bytes" in shown
    assert shown.encode()


def test_free_text() -> None:
    """A custom tool's input is one string."""
    assert "SELECT 1" == clipped_arguments("SELECT 1", ID, free_text=True)
    assert clipped_arguments(LONG, ID, free_text=True) == LABEL
    assert LABEL is not None
    assert clipped_arguments(LABEL, ID, free_text=True) == LABEL


def test_without_an_id() -> None:
    """Where the model has no recall tool, labels show none."""
    shown = clipped_arguments(json.dumps({"text": LONG}), "", free_text=False)
    assert shown is not None
    assert "id=" not in shown
