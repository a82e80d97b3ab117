"""The body's member that holds the system prompt: a string, or an array of blocks.

Our own text is added to what is there, each piece as a block of its own or after a blank line, and taken out again when
an agent sends it back. It is never looked for by its words: every block, and every stretch between blank lines, is held
against what was written. None of our pieces holds a blank line.
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
"""Where one of our pieces may begin: right after the last line end of a stretch of them."""
_SPACE: Final = b" \t\r\n"
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


def string_member(name: str) -> SystemMember:
    """A member that is a string: our text follows what is there after a blank line."""
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

    return SystemMember((name,), add, without, texts)


def block_without(value: bytes, is_own: Callable[[str], bool], field: str) -> bytes:
    """An array of blocks without those whose `text` is ours; any other value as it is. What stays keeps its bytes."""
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
        if number:  # with the comma before it, so that what an array ended with before ours was added stays
            value = value[: value.index(b",", ends[number])] + value[ends[number + 1] :]
        else:
            value = value[:start] + value[ends[1] :].lstrip(_SPACE).removeprefix(b",").lstrip(_SPACE)
    return value


def block_texts(value: bytes, field: str) -> list[str]:
    """The texts of an array of blocks, or of a string; a block that is no text as compact JSON."""
    decoded = load_any(value, field)
    blocks = decoded if type(decoded) is list else [] if decoded is None else [decoded]
    return [block if type(block) is str else _text_of(block) or canonical(block, field).decode() for block in blocks]


def add_block(value: bytes, block: bytes) -> bytes:
    """An array with one more block at its end; what is there keeps its bytes."""
    return value[:-1] + b"," + block + b"]" if _raw_array.decode(value) else b"[" + block + b"]"


def _text_of(block: Any) -> str:
    text = block.get("text") if type(block) is dict else None
    return text if type(text) is str else ""
