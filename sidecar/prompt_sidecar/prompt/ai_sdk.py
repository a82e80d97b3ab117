"""The model messages of the AI SDK for TypeScript, of its versions 5 and 6.

A message is `{"role", "content"}` with a string or an array of parts. Calls are `tool-call` parts; results are
`tool-result` parts of tool messages, or of assistant messages where the provider ran the tool. A result's output has a
type: text and JSON, each also as an error, parts (`content`), or a denied execution. Elided JSON is not JSON any more,
so its output becomes text.

Anthropic's compaction is a text with provider options that mark it; see `anthropic_messages.py`.

An approval is requested next to its call and answered in a tool message. It is reported as a call and its answer, so it
is dropped only together with its call. The body is the input of `generateText`, written as JSON. Source: the package's
published schemas (`modelMessageSchema`) and the checks in its conversion of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.ambiguous import load_any, tolerant
from prompt_sidecar.prompt.format import Compaction, Format, ReasoningRule, Replacement, SystemMember
from prompt_sidecar.prompt.gathering import Gathering, identity_of, loaded, role_of, without_reasoning
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role, check_parts
from prompt_sidecar.prompt.jsontext import ValuesByPath, array_length, canonical, splice
from prompt_sidecar.prompt.parts import originals_at, shown_json, string, text_in_place
from prompt_sidecar.prompt.system_member import add_block, string_member

_ROLES: Final[Mapping[str, Role]] = {
    "system": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}
_KNOWN: Final = frozenset({"role", "content"})
_TEXT_OUTPUTS: Final = frozenset({"text", "error-text"})
_JSON_OUTPUTS: Final[Mapping[str, str]] = {"json": "text", "error-json": "error-text"}
"""Output types for JSON, and the corresponding types for text."""
_IMAGES: Final = frozenset({"image", "image-data", "image-url", "image-file-id"})
_FILES: Final = frozenset({"file", "media", "file-data", "file-url"})
_ENCRYPTED: Final = ("signature", "redactedData", "reasoningEncryptedContent", "thoughtSignature")
"""Names that the SDK's providers use for the encrypted text of reasoning."""
_APPROVAL: Final = "approval:"
"""Prefix of the pairing id of an approval, so that it is never equal to a call's id."""
_as_text: Final = string_member("system")
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = loaded(raw, field, identify=identify)
    reader = _Reader(role_of(value, field, _ROLES))
    reader.content(value.get("content"), field)
    reader.rest(value, _KNOWN)
    return reader.message(identity_of(value, _comparable, identify=identify))


class _Reader(Gathering):
    """Gathers the items of one message in order."""

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one part."""
        kind = string(part.get("type"))
        if kind == "text" and part.get("text") and _is_compaction(part):
            self.compaction(part, drops=True)
        elif kind == "text" and type(part.get("text")) is str:
            self.text(part["text"], (*path, "text"))
        elif kind == "tool-call":
            self._call(part, path)
        elif kind == "tool-result":
            self._result(part, path, field)
        elif kind == "reasoning" and self.role is Role.ASSISTANT:
            self._reasoning(part, path)
        elif _is_image(part) and self.role in (Role.USER, Role.ASSISTANT):
            self.items.append(Item(ItemKind.IMAGE, path, canonical(part).decode(), raw_json=True))
        else:
            self.other.append(canonical(part).decode())
            if kind == "tool-approval-request":
                self.calls.append(_APPROVAL + string(part.get("approvalId")))
            elif kind == "tool-approval-response":
                self.answers.append(_APPROVAL + string(part.get("approvalId")))

    def _reasoning(self, part: dict[str, Any], path: Path) -> None:
        """Read a part of reasoning. Its encrypted text is among the options of its provider.

        If it has an id there (OpenAI's), the provider may require it together with the parts that follow.
        """
        options = part.get("providerOptions")
        of_providers = [each for each in options.values() if type(each) is dict] if type(options) is dict else []
        encrypted = "".join(string(each.get(name)) for each in of_providers for name in _ENCRYPTED)
        fixed = any(type(each.get("itemId")) is str for each in of_providers)
        self.reasoning(path, encrypted, [((*path, "text"), string(part.get("text")))], fixed=fixed)

    def _call(self, part: dict[str, Any], path: Path) -> None:
        call_id, name = string(part.get("toolCallId")), string(part.get("toolName"))
        self.calls.append(call_id)
        self.names.append(name)
        if "input" in part:
            text = canonical(part["input"]).decode()
            at = (*path, "input")
            self.items.append(Item(ItemKind.ARGUMENTS, at, text, raw_json=True, call_id=call_id, tool=name))
        else:
            self.other.append(canonical(part).decode())

    def _result(self, part: dict[str, Any], path: Path, field: str) -> None:
        call_id, name = string(part.get("toolCallId")), string(part.get("toolName"))
        result = len(self.answers)
        self.answers.append(call_id)
        self.names.append(name)
        output = part.get("output")
        kind = string(output.get("type")) if type(output) is dict else ""
        value = output.get("value") if type(output) is dict else None
        at = (*path, "output", "value")

        def put(kind: ItemKind, path: Path, text: str, raw_json: bool = False) -> None:
            self.items.append(Item(kind, path, text, raw_json=raw_json, call_id=call_id, tool=name, result=result))

        if kind in _TEXT_OUTPUTS and type(value) is str:
            if value:
                put(ItemKind.RESULT, at, value)
        elif kind in _JSON_OUTPUTS and value is not None:
            put(ItemKind.RESULT, at, shown_json(value, field), raw_json=True)
        elif kind == "content" and type(value) is list:
            check_parts(value, f"{field}.output.value")
            for index, inner in enumerate(value):
                if type(inner) is dict and inner.get("type") == "text" and type(inner.get("text")) is str:
                    if inner["text"]:
                        put(ItemKind.RESULT, (*at, index, "text"), inner["text"])
                elif type(inner) is dict and _is_image(inner):
                    put(ItemKind.IMAGE, (*at, index), canonical(inner).decode(), raw_json=True)
                else:
                    self.other.append(canonical(inner).decode())
        else:
            self.other.append(canonical(part).decode())


def _is_compaction(part: dict[str, Any]) -> bool:
    options = part.get("providerOptions")
    return type(options) is dict and any(
        type(each) is dict and each.get("type") == "compaction" for each in options.values()
    )


def _is_image(part: dict[str, Any]) -> bool:
    kind = string(part.get("type"))
    return kind in _IMAGES or (kind in _FILES and string(part.get("mediaType")).startswith("image"))


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` accepted."""
    edits, others, label = without_reasoning(replacements)
    values = ValuesByPath(raw)
    if edits and len(edits) == array_length(raw, ("content",)):  # a message must have content
        edits[min(edits)] = orjson.dumps({"type": "text", "text": label})
    for item, text in others.items():
        if item.kind is ItemKind.IMAGE:
            edits[item.path] = text_in_place(values.at(item.path), text or "")
        elif item.kind is ItemKind.ARGUMENTS:
            edits[item.path] = (text or ('""' if item.text[:1] == '"' else "{}")).encode()
        else:
            edits[item.path] = orjson.dumps(text or "")
            if item.raw_json:  # elided JSON is text, and its output must have that type
                kind = (*item.path[:-1], "type")
                edits[kind] = orjson.dumps(_JSON_OUTPUTS[orjson.loads(values.at(kind))])
    return splice(raw, edits)


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition. The agent passes `inputSchema` through the SDK's `jsonSchema`, the rest to `tool`."""
    return orjson.dumps({"name": name, "description": description, "inputSchema": orjson.Fragment(parameters)})


# -- the system prompt: a string, a system message, or an array of these ---------------------------------------------


def add_system(value: bytes | None, text: str) -> bytes:
    """Add a text to the system prompt. Raises InvalidJson if that is neither a string nor messages."""
    if value is None or value == b"null" or value[:1] == b'"':
        return _as_text.add(value, text)
    message = orjson.dumps({"role": "system", "content": text})
    if value[:1] in {b"[", b"{"}:
        return add_block(value if value[:1] == b"[" else b"[" + value + b"]", message)
    raise _no_system()


def system_without(value: bytes, is_own: Callable[[str], bool]) -> bytes:
    """Return the system prompt without our texts that were sent back. Raises InvalidJson if it is not strict JSON."""
    if value[:1] != b"[":
        return _as_text.without(value, is_own)
    messages = [bytes(message) for message in _raw_array.decode(value)]
    kept = [message for message in messages if not is_own(_content_of(load_any(message, "json.body.system")))]
    return value if len(kept) == len(messages) else b"[" + b",".join(kept) + b"]"


def system_texts(value: bytes) -> list[str]:
    """Return the texts of the system prompt. Raises InvalidJson if it is neither a string nor messages."""
    decoded = load_any(value, "json.body.system")
    messages = decoded if type(decoded) is list else [] if decoded is None else [decoded]
    if not all(type(message) in (str, dict) for message in messages):
        raise _no_system()
    return [
        message if type(message) is str else _content_of(message) or canonical(message).decode() for message in messages
    ]


def _content_of(message: Any) -> str:
    return string(message.get("content")) if type(message) is dict else ""


def _no_system() -> InvalidJson:
    return InvalidJson(
        "json.body.system must be a string, a system message or an array of these", field="json.body.system"
    )


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message without null members, with a string content as one text part."""
    kept = {name: member for name, member in value.items() if member is not None}
    if type(kept["content"]) is str:
        kept["content"] = [{"type": "text", "text": kept["content"]}]
    return kept


_UNBOUND: Final = tolerant(
    Format(
        name="ai_sdk",
        read=read,
        write=write,
        originals=originals_at,
        tool=tool,
        leading_system=True,
        system=SystemMember(
            names=("system", "instructions"), add=add_system, without=system_without, texts=system_texts
        ),
        tool_fields=("tools",),
        compaction=Compaction.DROPS,
        reserve_fields=("maxOutputTokens", "maxTokens"),
    )
)
_BOUND: Final = replace(_UNBOUND, reasoning=ReasoningRule.BOUND)
FORMAT: Final = replace(_UNBOUND, bound=_BOUND)
