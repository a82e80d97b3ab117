"""Gemini's contents, as in generateContent.

A message is `{"role", "parts"}`; a part is an object with one member for its kind and others with details. Calls are
`functionCall` parts whose arguments are an object, results are `functionResponse` parts of the next user turn, whose
`response` is an object. Neither needs an id: they then pair by name and order. The system prompt is a member of the
body, an object with parts; system messages in the history are not allowed. Names may be in camel case or snake case,
and edits keep the case in use. As in the guides, an array of one part may be written as that part.

Thoughts are parts of their own, summaries that the provider does not require back; those of finished turns may be
removed. A part with a thought signature is returned unchanged, because the provider rejects a signature whose part was
changed. Its arguments are recorded, and dropped only with their whole iteration. Two signatures count as none: the
guides offer them to clients without a real one, and the provider does not check them.

Source: the provider's API reference, generateContent, Content and Part, and its guides on function calling (with its
section on media in function responses) and on thought signatures.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.ambiguous import load_any, tolerant
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format, Replacement, SystemMember
from prompt_sidecar.prompt.gathering import Gathering, each_object, identity_of, loaded, without_reasoning
from prompt_sidecar.prompt.items import (
    Item,
    ItemKind,
    Message,
    Path,
    Role,
    opaque_tokens,
    pairing_id,
)
from prompt_sidecar.prompt.jsontext import array_length, canonical, splice, value_at
from prompt_sidecar.prompt.parts import originals_at, string
from prompt_sidecar.prompt.structured import result_items, result_value
from prompt_sidecar.prompt.system_member import add_block, block_texts, block_without

_ROLES: Final[Mapping[str, Role]] = {
    "": Role.USER,  # a prompt of one turn may leave it out
    "user": Role.USER,
    "model": Role.ASSISTANT,
    "function": Role.TOOL,
    "tool": Role.TOOL,
    "system": Role.SYSTEM,
}
_CALLS: Final = ("functionCall", "function_call")
_RESULTS: Final = ("functionResponse", "function_response")
_INLINE: Final = ("inlineData", "inline_data")
_FILES: Final = ("fileData", "file_data")
_TYPES: Final = ("mimeType", "mime_type")
_NAMES: Final = ("displayName", "display_name")
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_NO_SIGNATURES: Final = (
    None,
    *(
        spelling
        for text in ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
        for spelling in (text, base64.b64encode(text.encode()).decode())
    ),
)
"""Placeholders for a missing signature, in base64 or, as the guides write them, as plain text."""
_KNOWN: Final = frozenset({"role", "parts"})
_KNOWN_OF_CALL: Final = frozenset({"id", "name", "args"})
_KNOWN_OF_RESULT: Final = frozenset({"id", "name", "response", "parts"})
_KNOWN_OF_PLAIN: Final = frozenset({*_TYPES, "data"})
_NOTHING: Final[frozenset[str]] = frozenset()
_PLAIN: Final = "text/plain"


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    return _read(raw, field, identify=identify, as_sent=False)


def _read_as_sent(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """The same for `Format.as_sent`."""
    return _read(raw, field, identify=identify, as_sent=True)


def _read(raw: bytes | memoryview, field: str, *, identify: bool, as_sent: bool) -> Message:
    value = loaded(raw, field, identify=identify)
    role_name = value.get("role")
    if role_name is not None and type(role_name) is not str:
        raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
    reader = _Reader(_ROLES.get(role_name or "", Role.OTHER), as_sent=as_sent)
    _each(value.get("parts"), ("parts",), f"{field}.parts", reader.part)
    reader.rest(value, _KNOWN)
    return reader.message(identity_of(value, _comparable, identify=identify))


class _Reader(Gathering):
    """Gathers the items of one message in order."""

    def __init__(self, role: Role, *, as_sent: bool) -> None:
        super().__init__(role)
        self._as_sent = as_sent

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        signed = any(part.get(name) not in _NO_SIGNATURES for name in _SIGNATURES)
        signature = "".join(string(part.get(name)) for name in _SIGNATURES) if signed else ""
        thought = part.get("thought") is True and self.role is Role.ASSISTANT
        part = {name: member for name, member in part.items() if name not in _SIGNATURES}
        if thought and _member(part, (*_CALLS, *_RESULTS)) is None:
            self.reasoning(path, signature, [((*path, "text"), string(part.get("text")))])
            return
        self.opaque += opaque_tokens(signature)
        if (found := _member(part, _CALLS)) is not None:
            self._call(part, *found, path=path, signed=signed)
        elif (found := _member(part, _RESULTS)) is not None:
            self._result(part, *found, path=path, field=f"{field}.{found[0]}", signed=signed)
        elif type(text := part.get("text")) is str and part.get("thought") in (None, False):
            self._text(part, text, path, signed=signed)
        elif not signed and _is_image(part):
            self.items.append(Item(ItemKind.IMAGE, path, canonical(part).decode(), raw_json=True))
        else:
            self.rest(part, _NOTHING)
        self.more |= signed

    def _text(self, part: dict[str, Any], text: str, path: Path, *, signed: bool) -> None:
        self.text(text, (*path, "text"), fixed=signed)
        self.rest(part, frozenset({"text", "thought"}))

    def _call(self, part: dict[str, Any], kind: str, call: dict[str, Any], *, path: Path, signed: bool) -> None:
        name = string(call.get("name"))
        call_id = pairing_id(string(call.get("id")), name)
        self.calls.append(call_id)
        self.names.append(name)
        self.rest(part, frozenset({kind}))
        self.rest(call, _KNOWN_OF_CALL)
        if call.get("args") is not None:
            text, at = canonical(call["args"]).decode(), (*path, kind, "args")
            self.items.append(
                Item(ItemKind.ARGUMENTS, at, text, raw_json=True, call_id=call_id, tool=name, fixed=signed)
            )

    def _result(
        self, part: dict[str, Any], kind: str, of_call: dict[str, Any], *, path: Path, field: str, signed: bool
    ) -> None:
        name = string(of_call.get("name"))
        call_id = pairing_id(string(of_call.get("id")), name)
        of = Item(ItemKind.RESULT, (), "", call_id=call_id, tool=name, result=len(self.answers), fixed=signed)
        self.answers.append(call_id)
        self.rest(part, frozenset({kind}))
        self.rest(of_call, _KNOWN_OF_RESULT)
        response = of_call.get("response")
        if response is None or type(response) is dict:
            at = (*path, kind, "response")
            self.items += result_items(response, at, of, f"{field}.response", as_sent=self._as_sent)
        else:
            self.other.append(canonical(response).decode())
        media = of_call.get("parts")
        _each(media, (*path, kind, "parts"), f"{field}.parts", lambda each, at, _: self._medium(each, at, of))

    def _medium(self, part: dict[str, Any], path: Path, of: Item) -> None:
        """Read a part of a result with media: an image, a plain text file, or an unknown kind."""
        if (found := _plain(part)) is not None:
            (kind, member), text = found
            self.items.append(of._replace(path=(*path, kind, member), text=text, cited=True))
            self.rest(part, frozenset({kind}))
            self.rest(part[kind], _KNOWN_OF_PLAIN)
        elif _is_image(part):
            text = canonical(part).decode()
            self.items.append(of._replace(kind=ItemKind.IMAGE, path=path, text=text, raw_json=True))
        else:
            self.rest(part, _NOTHING)


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` accepted."""
    removed, others, label = without_reasoning(replacements)
    edits = removed | {item.path: _value(item, text or "") for item, text in others.items()}
    if ("parts",) in removed:  # one part in place of an array of one
        edits["parts",] = orjson.dumps({"text": label})
    elif removed and len(removed) == array_length(raw, ("parts",)):  # a message must have parts
        edits[min(removed)] = orjson.dumps({"text": label})
    return splice(raw, edits)


def _value(item: Item, text: str) -> bytes:
    if item.kind is ItemKind.ARGUMENTS:
        return (text or "{}").encode()
    if item.kind is ItemKind.IMAGE:
        return orjson.dumps({"text": text} if item.result < 0 else _as_plain(orjson.loads(item.text), text))
    if item.path[-2] in _INLINE:
        return orjson.dumps(base64.b64encode(text.encode()).decode())
    return result_value(text, whole=item.kind is ItemKind.RESULT and item.path[-2] in _RESULTS)


def _as_plain(image: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a plain text file in place of an image in a function response, whose parts must be media.

    It keeps the name by which the response may refer to it.
    """
    camel = "_" not in next(name for name in (*_INLINE, *_FILES) if image.get(name) is not None)
    blob = {_TYPES[not camel]: _PLAIN, "data": base64.b64encode(text.encode()).decode()}
    of_image = _member(image, (*_INLINE, *_FILES))
    if of_image is not None and (name := _member_name(of_image[1], _NAMES)) is not None:
        blob[name] = of_image[1][name]
    return {_INLINE[not camel]: blob}


def _plain(part: dict[str, Any]) -> tuple[tuple[str, str], str] | None:
    """Return path and text of a plain text file in a function response's part; None for any other part."""
    found = _member(part, _INLINE)
    if found is None or _type(found[1]) != _PLAIN or type(data := found[1].get("data")) is not str:
        return None
    try:
        text = base64.b64decode(data.translate(_STANDARD) + "=" * (-len(data) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return ((found[0], "data"), text) if text else None


_STANDARD: Final = str.maketrans("-_", "+/")
"""Maps the URL-safe base64 alphabet, which some clients use, to the standard one."""


def _is_image(part: dict[str, Any]) -> bool:
    found = _member(part, (*_INLINE, *_FILES))
    return found is not None and _type(found[1]).startswith("image/")


def _type(blob: dict[str, Any]) -> str:
    name = _member_name(blob, _TYPES)
    return "" if name is None else string(blob[name])


def _member_name(value: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if value.get(name) is not None), None)


def _member(value: dict[str, Any], names: tuple[str, ...]) -> tuple[str, dict[str, Any]] | None:
    """Return the first of these members that is present and an object, with its name, or None."""
    name = _member_name(value, names)
    return None if name is None or type(value[name]) is not dict else (name, value[name])


def _each(parts: Any, path: Path, field: str, take: Callable[[dict[str, Any], Path, str], None]) -> None:
    """Call `take` for each part: parts are an array of objects, one object, or absent."""
    if type(parts) is dict:
        take(parts, path, field)
    elif parts is not None:
        for part, at, where in each_object(parts, path, field):
            take(part, at, where)


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message and its parts without null members, which some clients write and others omit."""
    kept = _without_null(value)
    parts = kept.get("parts")
    if type(parts) is list:
        kept["parts"] = [_without_null(part) for part in parts]
    elif type(parts) is dict:
        kept["parts"] = [_without_null(parts)]
    return kept


def _without_null(value: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if member is not None}


# -- tools and the system prompt
# -----------------------------------------------------------------------------------------


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition, a member of `functionDeclarations` of one of the `tools`."""
    return orjson.dumps({"name": name, "description": description, "parametersJsonSchema": orjson.Fragment(parameters)})


_SYSTEM: Final = "json.body.systemInstruction"
_SYSTEM_PARTS: Final = f"{_SYSTEM}.parts"


def add_system(value: bytes | None, text: str) -> bytes:
    """Add a text part to the system prompt; existing parts keep their bytes.

    Raises:
        InvalidJson: the body's system instruction is not an object with parts.
    """
    part = orjson.dumps({"text": text})
    parts = None if value is None else _system_parts(value)
    if value is None or value == b"null":
        return b'{"parts":[' + part + b"]}"
    if parts is None:
        rest = {name: member for name, member in load_any(value, _SYSTEM).items() if name != "parts"}
        return orjson.dumps({**rest, "parts": orjson.Fragment(b"[" + part + b"]")})
    whole = parts if parts[:1] == b"[" else b"[" + parts + b"]"
    return splice(value, {("parts",): add_block(whole, part)})


def without_own(value: bytes, is_own: Callable[[str], bool]) -> bytes:
    """Return the system prompt without our own parts; null if nothing else is left.

    Raises:
        InvalidJson: the body's system instruction is not an object with parts.
    """
    parts = _system_parts(value)
    if parts is None:
        return value
    whole = parts if parts[:1] == b"[" else b"[" + parts + b"]"
    kept = block_without(whole, is_own, _SYSTEM_PARTS)
    if kept == whole:
        return value
    if not load_any(kept, _SYSTEM_PARTS) and load_any(value, _SYSTEM).keys() == {"parts"}:
        return b"null"
    return splice(value, {("parts",): kept})


def system_texts(value: bytes) -> list[str]:
    """Return the texts of the system prompt; other parts as compact JSON.

    Raises InvalidJson as the functions above do.
    """
    parts = _system_parts(value)
    return [] if parts is None else block_texts(parts, _SYSTEM_PARTS)


def _system_parts(value: bytes) -> bytes | None:
    """Return the raw parts of a system instruction, an array or one object; None if it has none."""
    decoded = load_any(value, _SYSTEM)
    if decoded is None:
        return None
    if type(decoded) is not dict or type(decoded.get("parts")) not in {list, dict, type(None)}:
        raise InvalidJson(f"{_SYSTEM} must be an object with an array of parts", field=_SYSTEM)
    return value_at(value, ("parts",)) if decoded.get("parts") is not None else None


def _variant(split: Split, _: str = "") -> Format:
    """Return the variant for a body with a stored cache, whose system prompt is there: the provider rejects another."""
    cached = any(split.field(name) not in (None, b"null", b'""') for name in ("cachedContent", "cached_content"))
    return _CACHED if cached else FORMAT


def _inside_config(*names: str) -> tuple[str, ...]:
    return tuple(f"{outer}.{name}" for outer in ("generationConfig", "generation_config") for name in names)


_SCHEMAS: Final = ("responseSchema", "response_schema", "responseJsonSchema", "response_json_schema")

_BY_NAME: Final = Format(
    name="gemini_contents",
    read=read,
    write=write,
    originals=originals_at,
    tool=tool,
    system=SystemMember(
        names=("systemInstruction", "system_instruction"), add=add_system, without=without_own, texts=system_texts
    ),
    messages_field="contents",
    tool_fields=("tools", *_inside_config(*_SCHEMAS)),
    reserve_fields=_inside_config("maxOutputTokens", "max_output_tokens"),
    variant=_variant,
)
_AS_SENT: Final = tolerant(replace(_BY_NAME, read=_read_as_sent, numbers_as_sent=True))
FORMAT: Final = replace(tolerant(_BY_NAME), as_sent=_AS_SENT)
_CACHED: Final = replace(FORMAT, system=None, as_sent=replace(_AS_SENT, system=None))
