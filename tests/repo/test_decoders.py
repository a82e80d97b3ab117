"""Typed decoders of msgspec are made when a module is imported, never by a call.

Where two threads decode a dataclass or a Struct for the first time at once, msgspec uses what it has found out of the
type before that is complete, and the process ends with a segmentation fault (seen with 0.22 and Python 3.11).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sidecar" / "prompt_sidecar"
MAKES = frozenset({"Decoder", "convert"})


def _late(source: str) -> Iterator[int]:
    """Lines at which something is decoded into a type that is named in the call, or a decoder is made in a function."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "decode" and any(each.arg == "type" for each in node.keywords):
            yield node.lineno
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKES:
                    yield node.lineno


def test_no_type_is_decoded_for_the_first_time_by_a_call() -> None:
    """In any module that uses msgspec."""
    late = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if "msgspec" in (source := path.read_text())
        for line in _late(source)
    ]
    assert [] == late


@pytest.mark.parametrize(
    "planted",
    [
        "msgspec.json.decode(raw, type=Head)",
        "def read(raw):\n    return msgspec.msgpack.Decoder(Head).decode(raw)",
        "def read(value):\n    return msgspec.convert(value, Head)",
    ],
)
def test_a_planted_one_is_found(planted: str) -> None:
    """Decoding by a type, and making a decoder in a function."""
    assert [*_late(planted)]
