"""Markers and placeholders, letter by letter: a changed label would change prompts that are cached."""

from __future__ import annotations

import pytest

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.elide import KeptBytes, elided, marker, placeholder

ID = "abcdefghjk"


def test_a_marker_states_bytes_and_id() -> None:
    """It states the bytes removed and an id, and holds no instruction."""
    assert "[content elided to fit context window — id=abcdefghjk, 48,210 bytes]" == marker(ID, 48_210)
    assert "[content elided to fit context window — 7 bytes]" == marker("", 7)


@pytest.mark.parametrize(
    ("kind", "stash_id", "text"),
    [
        (ItemKind.RESULT, ID, "[content clipped — id=abcdefghjk, 48,210 bytes]"),
        (ItemKind.TEXT, ID, "[content clipped — id=abcdefghjk, 48,210 bytes]"),
        (ItemKind.IMAGE, ID, "[screenshot clipped for brevity — id=abcdefghjk, 48,210 bytes]"),
        (ItemKind.RESULT, "", "[content clipped — 48,210 bytes]"),
        (ItemKind.IMAGE, "", "[screenshot clipped for brevity — 48,210 bytes]"),
        (ItemKind.ARGUMENTS, ID, None),
        (ItemKind.ARGUMENTS, "", None),
    ],
)
def test_a_placeholder_is_a_label_or_empty_arguments(kind: ItemKind, stash_id: str, text: str | None) -> None:
    """Arguments become empty arguments; anything else a label."""
    assert text == placeholder(kind, stash_id, 48_210)


MARK = "[content elided to fit context window — 6 bytes]"


@pytest.mark.parametrize(
    ("text", "kept", "shown"),
    [
        ("abcdefghij", KeptBytes(2, 2), f"ab\n{MARK}\nij"),
        ("a\ncdefgh\nj", KeptBytes(2, 2), f"a\n{MARK}\nj"),
        ("abcdefgh", KeptBytes(0, 2), f"{MARK}\ngh"),
        ("abcdefgh", KeptBytes(2, 0), f"ab\n{MARK}"),
        ("abcdef", KeptBytes(0, 0), MARK),
        ("ébcdefgé", KeptBytes(2, 2), f"é\n{MARK}\né"),
    ],
)
def test_a_marker_has_a_line_of_its_own(text: str, kept: KeptBytes, shown: str) -> None:
    """The marker stands on a line of its own."""
    raw = text.encode()
    assert shown == elided(raw, raw, len(raw), kept, "")
