"""What counts as a reference in an action's text, kind by kind."""

from __future__ import annotations

import pytest

from tests.lab.evidence.history import ReferenceKind, references

K = ReferenceKind


@pytest.mark.parametrize(
    ("text", "kind", "names"),
    [
        ("see src/core/fold.py now", K.PATH, ["src/core/fold.py", "core/fold.py"]),
        ("see ./fold/two.py now", K.PATH, ["./fold/two.py"]),
        ("see https://example.com/a?b=1.", K.URL, ["https://example.com/a?b=1"]),
        ("at 3f2a91c today", K.HASH, ["3f2a91c"]),
        ("says TS2345 and ENOENT", K.ERROR, ["TS2345", "ENOENT"]),
        ("call read_file twice", K.NAME, ["read_file"]),
        ("call readFile and HTTPServer2", K.NAME, ["readFile", "HTTPServer2"]),
        ("call os.path.join twice", K.NAME, ["os.path.join"]),
        ("set MAX_TOKENS or TIMEOUT", K.NAME, ["MAX_TOKENS", "TIMEOUT"]),
        ("use the tool-result-cache", K.NAME, ["tool-result-cache"]),
        ("port 18443 of 3000 and 12", K.NUMBER, ["18443"]),
        ('it said "not my type"', K.QUOTED, ["not my type"]),
        ("it said `not my type`", K.QUOTED, ["not my type"]),
        ("    return the sum of all parts\n", K.LINE, ["return the sum of all parts"]),
    ],
)
def test_each_kind_of_reference_is_found(text: str, kind: ReferenceKind, names: list[str]) -> None:
    """Each kind is found, and nothing else is taken for it."""
    assert names == [name for name, found in references([text]).items() if found is kind]


@pytest.mark.parametrize("text", ["a_b", "e.g.", "re-use", "don't do what it's not", "1000 of 20", "short line"])
def test_prose_is_no_reference(text: str) -> None:
    """Short names, words with a hyphen, apostrophes and round numbers are none."""
    assert {} == references([text])
