"""Each spelling says the same and is spelled as its language spells it."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.respell import SPELLINGS, csharp, go, javascript, python_default, python_indented, python_unicode
from tests.oracle.shapes import canonical

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_number = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_value = st.recursive(
    st.none() | st.booleans() | _number | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", SPELLINGS)
@given(value=_value)
@settings(max_examples=60, deadline=None)
def test_says_the_same(name: str, value: object) -> None:
    """Decoded, with numbers as doubles, every spelling is the value that went in."""
    body = json.dumps(value).encode()
    assert canonical(json.loads(body)) == canonical(json.loads(SPELLINGS[name](body)))


@given(value=_value)
@settings(max_examples=60, deadline=None)
def test_is_stable(value: object) -> None:
    """A language that re-writes its own spelling changes nothing more."""
    for spell in SPELLINGS.values():
        once = spell(json.dumps(value).encode())
        assert once == spell(once)


BODY = (
    '{"b":"<a> & \'é\' + \\"\\\\ 🙂 \\u2028\\u007f\\u0001\\n`","a":[1.0,1e3,12345678901234567890,0.1,-0.0,1e-7,1e21]}'
).encode()


def test_csharp_escapes_all_but_ascii() -> None:
    """ASCII only, HTML characters escaped in capitals, numbers and keys as they came."""
    expected = (
        '{"b":"\\u003Ca\\u003E \\u0026 \\u0027\\u00E9\\u0027 \\u002B '
        '\\u0022\\\\ \\uD83D\\uDE42 \\u2028\\u007F\\u0001\\n\\u0060",'
        '"a":[1.0,1e3,12345678901234567890,0.1,-0.0,1e-7,1e21]}'
    )
    assert expected.encode() == csharp(BODY)


def test_go_sorts_keys_and_escapes_html() -> None:
    """Keys sorted, HTML characters and line separators escaped, float64 numbers."""
    expected = (
        '{"a":[1,1000,12345678901234567000,0.1,-0,1e-7,1e+21],'
        '"b":"\\u003ca\\u003e \\u0026 \'é\' + \\"\\\\ 🙂 \\u2028\x7f\\u0001\\n`"}'
    )
    assert expected.encode() == go(BODY)


def test_javascript_has_doubles_and_integer_keys_first() -> None:
    """Only what must be is escaped, numbers are doubles, integer keys come first."""
    expected = (
        '{"b":"<a> & \'é\' + \\"\\\\ 🙂 \u2028\x7f\\u0001\\n`","a":[1,1000,12345678901234567000,0.1,0,1e-7,1e+21]}'
    )
    assert expected.encode() == javascript(BODY)
    assert b'{"2":0,"10":0,"b":0,"01":0}' == javascript(b'{"b":0,"10":0,"01":0,"2":0}')


def test_python_writes_spaces_and_keeps_lone_surrogates() -> None:
    """Spaces after comma and colon; escapes or characters; a lone surrogate survives."""
    assert b'{"a": [1, "\\u00e9"]}' == python_default('{"a":[1,"é"]}'.encode())
    assert '{"a": [1, "é"]}'.encode() == python_unicode(b'{"a":[1,"\\u00e9"]}')
    assert b'{\n  "a": 1\n}' == python_indented(b'{"a":1}')
    assert b'"\\ud800"' == python_unicode(b'"\\ud800"')


@given(values=st.lists(_value, min_size=20, max_size=20))
@settings(max_examples=5, deadline=None)
def test_javascript_as_node(values: list[object]) -> None:
    """Node.js itself writes the same bytes."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    program = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0))))"
    body = json.dumps(values).encode()
    spoken = subprocess.run([node, "-e", program], input=body, capture_output=True, check=True, timeout=30).stdout
    assert spoken == javascript(body)
