"""The body's member for the system prompt: a string, or an array of blocks.

Our own text is added to it, each piece as a block of its own or after a blank line, and removed again when an agent
sends it back. It is not recognised by a pattern: every block, and every paragraph between blank lines, is compared with
what was written. None of our pieces contains a blank line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.format import SystemMember
from prompt_sidecar.prompt.jsontext import canonical

_BLANK_LINE: Final = "\n\n"
_BREAK: Final = re.compile(r"\n\n(?!\n)")
"""A paragraph break: of several line ends, one of our pieces begins after the last."""
_SPACE: Final = b" \t\r\n"
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


def string_member(name: str) -> SystemMember:
    """Return a member that is a string: our text is appended after a blank line."""
    field = f"json.body.{name}"

    def add(value: bytes | None, text: str) -> bytes:
        if value is None or value in {b"null", b'""'}:
            return orjson.dumps(text)
        if value[:1] != b'"':
            raise InvalidJson(f"{field} must be a string", field=field)
        return value[:-1] + orjson.dumps(_BLANK_LINE + text)[1:]

    def without(value: bytes, is_own: Callable[[str], bool]) -> bytes:
        text = load_any(value, field)
        if type(text) is not str:
            return value
        pieces = _BREAK.split(text)
        kept = [piece for piece in pieces if not is_own(piece)]
        return value if len(kept) == len(pieces) else orjson.dumps(_BLANK_LINE.join(kept))

    def texts(value: bytes) -> list[str]:
        text = load_any(value, field)
        if text is not None and type(text) is not str:
            raise InvalidJson(f"{field} must be a string", field=field)
        return [text] if text else []

    return SystemMember((name,), add, without, texts, one_text=True)


def block_member(name: str, add: Callable[[bytes | None, str], bytes]) -> SystemMember:
    """Return a member that is an array of blocks, to which `add` adds our text as a block."""
    field = f"json.body.{name}"
    return SystemMember(
        (name,), add, lambda value, is_own: block_without(value, is_own, field), lambda value: block_texts(value, field)
    )


def block_without(value: bytes, is_own: Callable[[str], bool], field: str) -> bytes:
    """Return an array of blocks without those whose `text` is ours; other values and all other bytes are unchanged."""
    if value[:1] != b"[":
        return value
    ends = [1]
    own: list[tuple[int, int]] = []
    for raw in _raw_array.decode(value):
        block = bytes(raw)
        start = value.index(block, ends[-1])
        if is_own(_text_of(load_any(block, field))):
            own.append((len(ends) - 1, start))
        ends.append(start + len(block))
    for number, start in reversed(own):
        if number:  # with the comma before it, to restore the array's end from before ours was added
            value = value[: value.index(b",", ends[number])] + value[ends[number + 1] :]
        else:
            value = value[:start] + value[ends[1] :].lstrip(_SPACE).removeprefix(b",").lstrip(_SPACE)
    return value


def block_texts(value: bytes, field: str) -> list[str]:
    """Return the texts of an array of blocks, or of a string; other blocks as compact JSON."""
    decoded = load_any(value, field)
    blocks = decoded if type(decoded) is list else [] if decoded is None else [decoded]
    return [block if type(block) is str else _text_of(block) or canonical(block, field).decode() for block in blocks]


def add_block(value: bytes, block: bytes) -> bytes:
    """Return an array with a block added at its end; all other bytes are kept."""
    return value[:-1] + b"," + block + b"]" if _raw_array.decode(value) else b"[" + block + b"]"


def _text_of(block: Any) -> str:
    text = block.get("text") if type(block) is dict else None
    return text if type(text) is str else ""
