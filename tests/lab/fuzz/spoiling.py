"""Valid JSON made odd, at a place that chance picks: mostly right in syntax, and of a shape that no reader expects."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

Place = tuple[str | int, ...]

HALF = "\ud83d"
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 7, 1.5, -0.0, 1e308, 2**31, 2**63, 2**70),
    *("", "x", "type", "\u0000", "🙂", HALF, "a" * 3_000),
    *({}, [], [[]], [{}], [None], {"type": {}}, {"type": []}, {"type": "text"}, {"type": "text", "text": {}}),
    *({"text": []}, [{"type": "text", "text": "x"}], {"role": "user"}, {"": ""}, [1, "a", {}], [HALF]),
    {"a": {"b": [{"c": None}]}},
)
"""What is put in place of a value."""
NAMES = (
    *("type", "role", "content", "text", "id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "toolCallId"),
    *("name", "input", "output", "arguments", "args", "parts", "response", "functionCall", "function_call"),
    *("functionResponse", "tool_calls", "function", "custom", "result", "source", "data", "value", "cache_control"),
    *("cachePoint", "thought", "thoughtSignature", "signature", "is_error", "status", "execution", "mimeType"),
    *("inlineData", "system", "tools", "instructions", "systemInstruction", "toolConfig", "inferenceConfig"),
    *("generationConfig", "max_tokens", "max_completion_tokens", "max_output_tokens", "store", "title", "context"),
    *("previous_response_id", "cachedContent", "model", "messages", "contents", "structuredContent", "annotations"),
    *("providerOptions", "json", "image"),
)
"""Members that readers look at, in one format or another."""
DEPTHS = (100, 260, 1_100)


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every place of a value, itself included."""
    yield at
    if isinstance(value, dict):
        for name, member in value.items():
            yield from places(member, (*at, name))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from places(element, (*at, index))


def spoiled(value: Any, chance: Random) -> Any:
    """A copy with one to three odd places."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        value = _once(value, chance)
    return value


def replaced(value: Any, place: Place, by: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return by
    first, *rest = place
    made = copy.copy(value)
    made[first] = replaced(value[first], tuple(rest), by)
    return made


def at(value: Any, place: Place) -> Any:
    """The value at a place."""
    for step in place:
        value = value[step]
    return value


def _once(value: Any, chance: Random) -> Any:
    everywhere = list(places(value))
    place = chance.choice(everywhere)
    here = at(value, place)
    how = chance.randrange(8)
    if how == 0 and isinstance(here, dict):
        return replaced(value, place, {**here, chance.choice(NAMES): chance.choice(ODD)})
    if how == 1 and isinstance(here, dict) and here:
        gone = chance.choice(list(here))
        return replaced(value, place, {name: member for name, member in here.items() if name != gone})
    if how == 2 and isinstance(here, dict) and here:
        old = chance.choice(list(here))
        new = chance.choice(NAMES)
        return replaced(value, place, {new if name == old else name: member for name, member in here.items()})
    if how == 3 and isinstance(here, list) and here:
        return replaced(value, place, [*here, chance.choice(here)])
    if how == 4 and isinstance(here, list) and here:
        return replaced(value, place, chance.sample(here, chance.randrange(len(here))))
    if how == 5:
        return replaced(value, place, chance.choice(([here], {"type": here}, {chance.choice(NAMES): here})))
    if how == 6:
        return replaced(value, place, at(value, chance.choice(everywhere)))
    return replaced(value, place, chance.choice(ODD))


def written(value: Any, chance: Random) -> bytes:
    """A value as JSON, now and then damaged as text is: cut, not UTF-8, a key twice, nested too deeply, spaced."""
    dense = chance.random() < 0.5
    raw = json.dumps(value, ensure_ascii=chance.random() < 0.5, separators=(",", ":") if dense else None)
    text = raw.encode("utf-8", "surrogatepass" if chance.random() < 0.2 else "backslashreplace")
    if chance.random() < 0.8:
        return text
    where = chance.randrange(len(text) + 1)
    damage = chance.randrange(7)
    if damage == 0:
        return text[:where]
    if damage == 1:
        return text[:where] + bytes([chance.randrange(256)]) + text[where:]
    if damage == 2:
        return text[:where] + bytes([chance.randrange(256)]) + text[where + 1 :]
    if damage == 3:
        opening = [index for index, byte in enumerate(text) if byte == ord("{")]
        name = json.dumps(chance.choice(NAMES)).encode()
        for _ in range(2 if opening else 0):
            place = chance.choice(opening) + 1
            text = text[:place] + name + b":" + json.dumps(chance.choice(ODD)).encode() + b"," + text[place:]
        return text
    if damage == 4:
        depth = chance.choice(DEPTHS)
        return (
            text.replace(b'"', b"[" * depth + b"]" * depth + b',"', 1)
            if chance.random() < 0.2
            else _deep(text, chance, depth)
        )
    if damage == 5:
        return text.replace(b",", b" ,\n\t", chance.randrange(1, 50))
    return (
        text[:where]
        + chance.choice((b"\\ud83d", b"\xff", b"\xed\xa0\x80", b"NaN", b"\x00", b"\xef\xbb\xbf"))
        + text[where:]
    )


def _deep(text: bytes, chance: Random, depth: int) -> bytes:
    """One string replaced by nested arrays."""
    quotes = [index for index, byte in enumerate(text) if byte == ord(":")]
    if not quotes:
        return text
    place = chance.choice(quotes) + 1
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return text[:place] + opening * depth + b"1" + closing * depth + b',"z":' + text[place:]
