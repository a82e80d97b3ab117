"""Typed messages, `prompt_sidecar.v1.Message`, for agents with message types of their own.

A slice is a message's serialised bytes, so untrimmed messages are returned unchanged, including fields of a later
version. An image that is clipped becomes text: a text part, or inside a tool result an image of media type text/plain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import orjson
from google.protobuf.message import DecodeError

from prompt_sidecar.errors import InvalidJson, InvalidRequest
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.format import Format, Placement, ReasoningRule, Replacement
from prompt_sidecar.prompt.gathering import reasoning_items, without_reasoning
from prompt_sidecar.prompt.items import Item, ItemKind, Path, Role, check_parts, text_kind
from prompt_sidecar.prompt.items import Message as Decoded
from prompt_sidecar.prompt.jsontext import canonical, digest
from prompt_sidecar.prompt.literals import Changes, applied
from prompt_sidecar.prompt.strings import Leaf, Strings, StringUse
from prompt_sidecar.prompt.utf8 import utf8
from prompt_sidecar.v1 import conversation_pb2 as pb

_ROLES: Final[Mapping[int, Role]] = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
    pb.ROLE_TOOL: Role.TOOL,
}


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Decoded:
    """Decode one message; see `Format.read`. Raises InvalidRequest if a role or part is unset or not JSON."""
    message = _parse(raw, field)
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest(
            f"{field}.role must be ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT or ROLE_TOOL", field=f"{field}.role"
        )
    items: list[Item] = []
    calls: list[str] = []
    answers: list[str] = []
    names: list[str] = []
    other: list[str] = []
    check_parts(message.parts, f"{field}.parts")
    for index, part in enumerate(message.parts):
        where = f"{field}.parts[{index}]"
        kind = part.WhichOneof("kind")
        if kind == "text":
            if part.text:
                items.append(Item(text_kind(role, part.text), (index,), part.text))
        elif kind == "tool_call":
            call = part.tool_call
            calls.append(call.id)
            names.append(call.name)
            items.append(Item(ItemKind.ARGUMENTS, (index,), call.arguments_json, call_id=call.id, tool=call.name))
        elif kind == "tool_result":
            items.extend(_result(part.tool_result, index, len(answers)))
            answers.append(part.tool_result.call_id)
        elif kind == "image":
            items.append(_image(part.image, (index,), "", -1))
        elif kind == "reasoning":
            items += reasoning_items((index,), part.reasoning.encrypted, [((index, "text"), part.reasoning.text)])
        elif kind == "opaque_json":
            other.append(canonical(load_any(part.opaque_json.encode(), f"{where}.opaque_json")).decode())
        else:
            raise InvalidRequest(f"{where} has no kind set", field=where)
    if other or not items:
        items.append(Item(ItemKind.OPAQUE, (), "", raw_json=True))
    return Decoded(
        role=role,
        items=tuple(items),
        identity=digest(message.SerializeToString(deterministic=True)) if identify else b"",
        calls=tuple(calls),
        answers=tuple(answers),
        other="\n".join((*names, *other)),
        media=sum(item.kind is ItemKind.IMAGE for item in items),
    )


def _result(result: pb.ToolResult, index: int, number: int) -> list[Item]:
    check_parts(result.images, "conversation.messages[].parts[].tool_result.images")
    items = [Item(ItemKind.RESULT, (index,), result.text, call_id=result.call_id, result=number)] if result.text else []
    items.extend(_image(image, (index, at), result.call_id, number) for at, image in enumerate(result.images))
    return items


def _image(image: pb.Image, path: Path, call_id: str, number: int) -> Item:
    from google.protobuf.json_format import MessageToDict  # 12 ms of each start, and few prompts have typed images

    text = canonical(MessageToDict(image)).decode()
    return Item(ItemKind.IMAGE, path, text, raw_json=True, call_id=call_id, result=number)


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced."""
    message = pb.Message.FromString(raw)
    removed, others, label = without_reasoning(replacements)
    for item, text in others.items():
        part = message.parts[int(item.path[0])]
        if item.kind is ItemKind.ARGUMENTS:
            part.tool_call.arguments_json = text or "{}"
        elif item.kind is ItemKind.RESULT:
            part.tool_result.text = text or ""
        elif item.kind is ItemKind.IMAGE and len(item.path) > 1:
            part.tool_result.images[int(item.path[1])].CopyFrom(
                pb.Image(media_type="text/plain", data=(text or "").encode())
            )
        else:
            part.text = text or ""
    for (index,) in sorted(removed, reverse=True):
        del message.parts[int(index)]
    if removed and not message.parts:  # a message must have content
        message.parts.add(text=label)
    return message.SerializeToString(deterministic=True)


def originals(raw: bytes, items: Sequence[Item]) -> list[bytes]:
    """Return the originals of items of this message; protobuf JSON for an image or a whole message."""
    message = pb.Message.FromString(raw) if any(item.raw_json for item in items) else pb.Message()
    return [_json(message, item) if item.raw_json else utf8(item.text) for item in items]


def _json(message: pb.Message, item: Item) -> bytes:
    from google.protobuf.json_format import MessageToJson  # see `_image`

    if not item.path:
        return MessageToJson(message, indent=None).encode()
    part = message.parts[int(item.path[0])]
    if item.kind is ItemKind.REASONING:
        return MessageToJson(part.reasoning, indent=None).encode()
    image = part.image if len(item.path) == 1 else part.tool_result.images[int(item.path[1])]
    return MessageToJson(image, indent=None).encode()


def leaves(raw: bytes | memoryview, field: str) -> Sequence[Leaf]:
    """Return the strings of a message that are or may be text. Places are indices of parts. Raises InvalidJson."""
    found: list[Leaf] = []
    for index, part in enumerate(_parse(raw, field).parts):
        kind = part.WhichOneof("kind")
        if kind == "text":
            found.append(Leaf(index, (index,), part.text, StringUse.TEXT))
        elif kind == "tool_call":
            found.append(Leaf(index, (index,), part.tool_call.arguments_json, StringUse.ARGUMENTS))
        elif kind == "tool_result":
            found.append(Leaf(index, (index,), part.tool_result.text, StringUse.TEXT))
            found += [
                Leaf(index, (index, at), image.uri, StringUse.OBSERVED)
                for at, image in enumerate(part.tool_result.images)
            ]
        elif kind == "image":
            found.append(Leaf(index, (index,), part.image.uri, StringUse.OBSERVED))
        elif kind == "reasoning":
            use = StringUse.OBSERVED if part.reasoning.encrypted else StringUse.TEXT
            found.append(Leaf(index, (index, "text"), part.reasoning.text, use))
        elif kind == "opaque_json":
            found.append(Leaf(index, (index,), part.opaque_json, StringUse.ARGUMENTS))
    return [leaf for leaf in found if leaf.text]


def changed(raw: bytes, changes: Changes) -> bytes:
    """Return the message with other texts in some of its parts."""
    if not changes:
        return raw
    message = pb.Message.FromString(raw)
    for index, edits in changes.items():
        part = message.parts[index]
        kind = part.WhichOneof("kind")
        if kind == "text":
            part.text = applied(part.text, edits)
        elif kind == "tool_call":
            part.tool_call.arguments_json = applied(part.tool_call.arguments_json, edits)
        elif kind == "tool_result":
            part.tool_result.text = applied(part.tool_result.text, edits)
        elif kind == "reasoning":
            part.reasoning.text = applied(part.reasoning.text, edits)
        else:
            part.opaque_json = applied(part.opaque_json, edits)
    return message.SerializeToString(deterministic=True)


def system_message(text: str) -> bytes:
    """Return a system message."""
    return pb.Message(role=pb.ROLE_SYSTEM, parts=[pb.Part(text=text)]).SerializeToString(deterministic=True)


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a plain tool definition: the agent converts it to its own types."""
    return orjson.dumps({"name": name, "description": description, "parameters": orjson.Fragment(parameters)})


def _parse(raw: bytes | memoryview, field: str) -> pb.Message:
    try:
        return pb.Message.FromString(bytes(raw))
    except DecodeError:
        raise InvalidJson(f"{field} is not a serialised prompt_sidecar.v1.Message", field=field) from None


_UNBOUND: Final = Format(
    name="conversation",
    read=read,
    write=write,
    originals=originals,
    tool=tool,
    placement=Placement.inside(system_message),
    leading_system=True,
    is_json=False,
    strings=Strings(leaves, changed),
)
_BOUND: Final = replace(_UNBOUND, placement=Placement.leading(system_message), reasoning=ReasoningRule.BOUND)
"""It is not known where the agent's provider accepts a system message, so none is placed inside the history."""
FORMAT: Final = replace(_UNBOUND, bound=_BOUND)
