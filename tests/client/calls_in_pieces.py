"""How servers of chat completions cut two calls of a sidecar's tool into pieces, and what both have to come to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

OURS: Final = "search_conversation_history"


class Piece(NamedTuple):
    """A piece of a call."""

    id: Any
    name: Any
    arguments: str
    index: Any = 0


WAYS: Final[Mapping[str, Sequence[Sequence[Piece]]]] = {
    "shared": [[Piece("a", OURS, '{"query":"one"}')], [Piece("b", OURS, '{"query":"two"}')]],
    "shared, in one chunk": [[Piece("a", OURS, '{"query":"one"}'), Piece("b", OURS, '{"query":"two"}')]],
    "id in each piece": [
        [Piece("a", OURS, "")],
        [Piece("a", None, '{"query"')],
        [Piece("a", None, ':"one"}')],
        [Piece("b", OURS, '{"query":"t', 1)],
        [Piece("b", None, 'wo"}', 1)],
    ],
    "id and name in each piece": [
        [Piece("a", OURS, '{"query"')],
        [Piece("a", OURS, ':"one"}')],
        [Piece("b", OURS, '{"query":"t')],
        [Piece("b", OURS, 'wo"}')],
    ],
    "empty id afterwards": [
        [Piece("a", OURS, '{"query"')],
        [Piece("", None, ':"one"}')],
        [Piece("b", OURS, '{"query":"t')],
        [Piece("", "", 'wo"}')],
    ],
    "a new id in each piece": [
        [Piece("a", OURS, "")],
        [Piece("x", None, '{"query":"one"}')],
        [Piece("b", OURS, "", 1)],
        [Piece("y", None, '{"query":"two"}', 1)],
    ],
    "no index": [
        [Piece("a", OURS, '{"query"', None)],
        [Piece(None, None, ':"one"}', None)],
        [Piece("b", OURS, '{"query":"two"}', None)],
    ],
    "indexes as strings": [
        [Piece("a", OURS, '{"query"', "0")],
        [Piece(None, None, ':"one"}', 0)],
        [Piece("b", OURS, '{"query":"two"}', "1")],
    ],
}
"""By what is odd about it, the pieces of each chunk."""


def check(prompt: Mapping[str, Any]) -> None:
    """Each call is answered by its id, with the arguments that are its own, in the prompt that follows."""
    message, *results = prompt["messages"][-3:]
    calls = [(each["id"], json.loads(each["function"]["arguments"])) for each in message["tool_calls"]]
    assert [("a", {"query": "one"}), ("b", {"query": "two"})] == calls
    assert ["a", "b"] == [each["tool_call_id"] for each in results]
