"""Texts encoded in pieces, against one go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt import utf8 as module
from prompt_sidecar.prompt.utf8 import utf8, utf8_pieces, utf8_size

_texts = st.text(alphabet="aé漢🙂\n", max_size=40)


@given(_texts, st.integers(1, 9))
def test_pieces_are_the_whole(text: str, size: int) -> None:
    """Pieces of any size give the bytes, and the number of bytes, of all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_CHARACTERS", size)
        assert text.encode() == utf8(text) == b"".join(utf8_pieces(text))
        assert len(text.encode()) == utf8_size(text)


@given(st.text(alphabet=["a", "é", "\ud83d", "\ude42"], max_size=12), st.integers(1, 9))
def test_halves_of_pairs_are_treated_alike(text: str, size: int) -> None:
    """They are replaced, or refused, as in one go, even where a cut is between two of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_CHARACTERS", size)
        assert text.encode(errors="replace") == utf8(text, "replace")
        try:
            text.encode()
        except UnicodeEncodeError:
            with pytest.raises(UnicodeEncodeError):
                utf8(text)
