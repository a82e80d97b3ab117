"""What the client has of its own, as it imports nothing of the server, does as the server's."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from prompt_sidecar.client import pieces
from prompt_sidecar.serving import answer_json, untyped
from prompt_sidecar.serving.dialects.chat_calls import _LONGEST_NAME, Called

_TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from("\ud83d\ude00\ud800\udfff"))
_NAMES = st.sampled_from([None, "", "a", "b", "ab", 7])


@given(_TEXTS)
@example("\ud83d\ude00\ud83d")
@example("\ude00\ud83d")
def test_halves_of_characters(text: str) -> None:
    """Pairs become characters, what is left of them U+FFFD."""
    assert answer_json.paired(text) == pieces.paired(text)
    assert answer_json.sound(text) == pieces.sound(text)


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.from_regex(r"[0-9]{1,11}(\.0)?", fullmatch=True)
    | st.lists(st.integers(), max_size=1)
)
@example("²")
@example("1" * 9)
@example("1" * 10)
@example(1e9)
@example(1e8)
def test_indexes_in_every_spelling(value: Any) -> None:
    """As a number, a string, or with a fraction of zero."""
    assert (untyped.ordinal(value), type(untyped.ordinal(value))) == (
        pieces.ordinal(value),
        type(pieces.ordinal(value)),
    )


@given(
    piece_id=_NAMES,
    piece_name=_NAMES,
    known_id=st.sampled_from(["", "a", "b"]),
    known_name=st.sampled_from(["", "a", "b"]),
    begun=st.booleans(),
)
def test_where_a_call_ends(piece_id: Any, piece_name: Any, known_id: str, known_name: str, *, begun: bool) -> None:
    """A piece with the same index that is another call's."""
    call = Called(id=known_id, name=known_name, arguments=["{"] if begun else [])
    piece = {"id": piece_id, "function": {"name": piece_name}}

    assert call.ends_with(piece) == pieces.another(piece_id, piece_name, known_id, known_name, begun=begun)
    assert _LONGEST_NAME == pieces.LONGEST_NAME
