"""Requests of every RPC, most of them odd: prompts in every format, and any field of any message.

Valid JSON is made odd at a place that chance picks: mostly right in syntax, and of a shape that no reader expects.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from prompt_sidecar.engine.tools.definitions import TOOLS
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.v1 import (
    policy_pb2,
    trim_pb2,
)
from tests.conformance.table import CASES
from tests.doors.grpc.serving import REQUESTS

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


RUN = "fuzz"
WINDOWS = (0, 0, 60, 300, 1_500, 6_000)
MCP_RESULT = {
    "content": [
        {"type": "text", "text": "a line of output\n" * 300},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "of a resource", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk=", "mimeType": "image/png"}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        {"type": "text", "text": '{"rows": [1, 2.0, "three"]}'},
    ],
    "structuredContent": {"rows": [1, 2, "three"]},
    "isError": False,
    "_meta": {"a": 1},
}
TEXTS = (
    "",
    "x",
    RUN,
    "other",
    "\x00",
    "é🙂",
    "a" * 300,
    "{}",
    "[]",
    '{"id": {}}',
    "null",
    "(",
    "^.*$",
    "1",
    "-1",
    "\\",
    "🙂" * 70,
)
NUMBERS = (0, 1, 2, -1, 7, 60, 4_000, 2**31 - 1, -(2**31))
JSON_FORMATS = (*CASES, "mcp_tool_result")


@functools.cache
def prompt(format: str, seed: int) -> Any:
    """A valid prompt of a format, with every kind of block that it has; the same for the same seed."""
    return MCP_RESULT if format == "mcp_tool_result" else CASES[format].history(Random(seed), 6)


def of_prompt(format: str, body: bytes, chance: Random) -> trim_pb2.TrimPromptRequest:
    """A request with a prompt, and mostly plain fields beside it."""
    request = trim_pb2.TrimPromptRequest(run_id=RUN, context_window=chance.choice(WINDOWS))
    request.json.format = trim_pb2.Format.Value(f"FORMAT_{format.upper()}")
    request.json.body = body
    if chance.random() < 0.5:
        request.recall_unavailable = chance.random() < 0.3
        request.side_call = chance.random() < 0.2
        request.dry_run = chance.random() < 0.2
        request.response_mode = chance.choice(trim_pb2.ResponseMode.values())
        request.policy.preset = chance.choice(policy_pb2.Preset.values())
        request.output_reserve = chance.choice((0, 10))
        for _ in range(chance.choice((0, 0, 1, 3))):
            request.annotations.add(message_index=chance.randrange(4), kind=chance.randrange(1, 6))
    return request


def odd_prompt(chance: Random) -> trim_pb2.TrimPromptRequest:
    """A prompt in some format, spoiled."""
    format = chance.choice(JSON_FORMATS)
    value = spoiled(prompt(format, chance.randrange(6)), chance)
    named = format if chance.random() < 0.95 else chance.choice(JSON_FORMATS)
    if isinstance(value, dict) and chance.random() < 0.1:
        value = value.get(FORMATS[format].messages_field, value)
    return of_prompt(named, written(value, chance), chance)


def odd_conversation(chance: Random) -> trim_pb2.TrimPromptRequest:
    """Typed messages of any shape."""
    request = trim_pb2.TrimPromptRequest(run_id=RUN, context_window=chance.choice(WINDOWS))
    for _ in range(chance.randrange(6)):
        filled(request.conversation.messages.add(), chance, fill=0.9)
    return request


def odd_request(name: str, chance: Random, known: Sequence[Any]) -> bytes:
    """A request of one RPC with any values in its fields; `known`: ids and revisions that the run's answers gave."""
    if name == "TrimPrompt":
        made: Message = odd_conversation(chance) if chance.random() < 0.2 else odd_prompt(chance)
        if chance.random() < 0.2:
            filled(made, chance, fill=0.2, known=known, spare=("json", "conversation"))
    else:
        made = filled(REQUESTS[name](), chance, fill=0.7, known=known)
        if name == "CallTool" and chance.random() < 0.9:
            made.name = chance.choice(tuple(TOOLS))  # type: ignore[attr-defined]
            made.arguments_json = _arguments(chance, known)  # type: ignore[attr-defined]
    if chance.random() < 0.9 and "run_id" in made.DESCRIPTOR.fields_by_name:
        made.run_id = RUN  # type: ignore[attr-defined]
    raw = made.SerializeToString()
    if chance.random() < 0.05 and raw:
        where = chance.randrange(len(raw))
        raw = raw[:where] + bytes([chance.randrange(256)]) + raw[where + chance.randrange(3) :]
    return raw


def _arguments(chance: Random, known: Sequence[Any]) -> str:
    plain = {
        "id": chance.choice([*(each for each in known if isinstance(each, str)), "x"]),
        "query": chance.choice(("nightly build", "", HALF, "a" * 5_000)),
        "tasks": ["one", "two"],
        "status": "completed",
        "pattern": chance.choice(("build", "(", "(a+)+$")),
    }
    value = {name: member for name, member in plain.items() if chance.random() < 0.6}
    if chance.random() < 0.6:
        value = spoiled(value, chance)
    return written(value, chance).decode("utf-8", "replace") if chance.random() < 0.9 else chance.choice(TEXTS)


def filled(
    message: Message,
    chance: Random,
    *,
    fill: float,
    known: Sequence[Any] = (),
    spare: Sequence[str] = (),
    depth: int = 0,
) -> Message:
    """The message with any values in its fields, each with a probability of `fill`; those named in `spare` stay."""
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    for field in fields:
        if field.name in spare or chance.random() > fill or depth > 6:
            continue
        if field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(chance.choice((0, 1, 2, 5))):
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    filled(values.add(), chance, fill=fill, known=known, depth=depth + 1)
                else:
                    values.append(_scalar(field, chance, known))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            filled(getattr(message, field.name), chance, fill=fill, known=known, depth=depth + 1)
        else:
            setattr(message, field.name, _scalar(field, chance, known))
    return message


def _scalar(field: Any, chance: Random, known: Sequence[Any]) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        texts = [each for each in known if isinstance(each, str)]
        return chance.choice(texts) if texts and chance.random() < 0.4 else chance.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        blobs = [each for each in known if isinstance(each, bytes)]
        return chance.choice(blobs) if blobs and chance.random() < 0.5 else chance.choice((b"", b"x", b"\xff" * 40))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice([*(value.number for value in field.enum_type.values), 99])
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return chance.choice((0.0, 0.5, 1.0, -1.0, 1e308, float("nan"), float("inf")))
    number = chance.choice(NUMBERS)
    return abs(number) if field.type in (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64) else number


def sweep(format: str) -> Iterator[tuple[int, Place, Any]]:
    """Every place of valid prompts, once for all that differ in indices alone, with every odd value for it."""
    seen: set[tuple[object, ...]] = set()
    for seed in range(3):
        value = prompt(format, seed)
        for place in places(value):
            kind = _kinds(value, place)
            if kind in seen:
                continue
            seen.add(kind)
            for odd in ODD:
                yield seed, place, odd


def swept(format: str, case: tuple[int, Place, Any]) -> trim_pb2.TrimPromptRequest:
    """The request of a case of the sweep."""
    seed, place, odd = case
    return of_prompt(format, spelled(replaced(prompt(format, seed), place, odd)), Random(0))


def _kinds(value: Any, place: Place) -> tuple[object, ...]:
    """A place without its indices, with the type and role of what is on the way: a result's text is not a user's."""
    found: list[object] = []
    for number, step in enumerate(place):
        here = at(value, place[:number])
        if isinstance(step, int):
            found.append("[]")
            inner = here[step]
            if isinstance(inner, dict):
                found.append(
                    (str(inner.get("type")), str(inner.get("role")), *(sorted(inner) if "type" not in inner else ()))
                )
        else:
            found.append(step)
    return tuple(found)


def spelled(value: Any) -> bytes:
    """A value as plain JSON."""
    return json.dumps(value).encode()
