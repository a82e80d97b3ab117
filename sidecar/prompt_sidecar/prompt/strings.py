"""The strings of a message, and what may be done to each: changes inside a message are made on these.

A message is walked as it is decoded, in the order of its text. So the n-th string met, keys included, is the n-th
string literal of the JSON, which `literals.py` changes. The same holds for JSON inside a string, such as the arguments
of a call, one level down.

What a string is follows from the names on its way, as providers use them: the same names mean the same in all formats.

    text        what a user, the model or a tool wrote, and the values of calls' arguments
    arguments   JSON in a string: the strings in it are texts
    file        a plain text in base64
    observed    read by the provider and not to be changed: addresses, whatever a signature covers
    signed      the arguments of a call that a signature covers: as the model wrote them
    kept        names, ids, types, signatures, pictures: no text
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import orjson

from prompt_sidecar.errors import AmbiguousJson, InvalidJson, TooLarge
from prompt_sidecar.prompt.items import Path
from prompt_sidecar.prompt.jsontext import load, raise_if_out_of_memory, too_deep
from prompt_sidecar.prompt.literals import Changes, Edit, applied, changed, values_of_text
from prompt_sidecar.prompt.readable import readable
from prompt_sidecar.prompt.utf8 import utf8
from prompt_sidecar.providers.messages import CACHE_MARKS

MAX_NESTED: Final = 4
"""Levels of JSON in a string in JSON in a string that are taken apart; a call that passes JSON to a program that passes
it on has two."""
_KEPT: Final = frozenset(
    {
        *("role", "type", "id", "name", "status", "phase", "namespace", "detail", "format", "encoding", "language"),
        *("call_id", "tool_call_id", "tool_use_id", "toolUseId", "toolCallId", "toolName", "approvalId", "outcome"),
        *("approval_request_id", "approvalRequestId", "mimeType", "mime_type", "mediaType", "media_type", "execution"),
        *("server_label", "serverLabel", "file_id", "fileId", "container_id", "ttl", "model"),
    }
)
"""Members of a part that are no text of anybody."""
_SIGNED: Final = frozenset(
    {
        *("signature", "encrypted_content", "encryptedContent", "redactedData", "reasoningEncryptedContent"),
        *("thoughtSignature", "thought_signature", "encrypted_index", "encrypted_stdout", "redactedContent"),
    }
)
"""Signatures and encrypted text."""
_BLOBS: Final = frozenset({"data", "bytes", "blob", "image", "file_data", "fileData", "video", "audio"})
_ADDRESSES: Final = frozenset({"url", "uri", "image_url", "file_url", "fileUri", "file_uri", "source", "href"})
_OPTIONS: Final = frozenset({*CACHE_MARKS, "providerOptions", "providerMetadata", "cachePoint", "_meta"})
"""Members for the provider, some with signatures in them."""
_THOUGHT_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
"""Cover the part that they are a member of, whatever it is."""
_THINKING_SIGNATURES: Final = ("signature", "redactedData", *_THOUGHT_SIGNATURES)
"""Cover reasoning. What encrypts a text of its own (`encrypted_content`) does not cover the summary next to it."""
_WITH_SIGNATURES: Final = ("providerOptions", "providerMetadata", "extra_content")
"""Members with an object for each provider, which may hold the part's signature."""
_DATA: Final = frozenset(
    {"input", "args", "response", "structuredContent", "json", "arguments", "action", "parameters"}
)
"""Members whose value is the data of a call or a result: every string in it is text, whatever its name."""
_ARGUMENTS: Final = frozenset({"args", "input", "arguments"})
"""Members with a call's arguments, in parts that a signature may cover."""
_JSON_OUTPUTS: Final = frozenset({"json", "error-json"})
_DUMMY_SIGNATURES: Final = frozenset(
    spelling
    for text in ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
    for spelling in (text, base64.b64encode(text.encode()).decode())
)
"""What the guides offer in place of a signature; the provider does not check them."""


class Use(Enum):
    """What a string is; see the module."""

    TEXT = "text"
    ARGUMENTS = "arguments"
    FILE = "file"
    OBSERVED = "observed"
    SIGNED = "signed"


class Leaf(NamedTuple):
    """One string of a message that is or may be text."""

    place: int
    """Which string literal of the message it is, keys counted; in a typed message which of its fields."""
    path: Path
    text: str
    use: Use


@dataclass(frozen=True, slots=True)
class Strings:
    """How the strings of a format's messages are found and changed."""

    leaves: Callable[[bytes | memoryview, str], Sequence[Leaf]]
    """The strings of a message that are or may be text, in order. Raises InvalidJson; the text names the field."""
    changed: Callable[[bytes, Changes], bytes]
    """The message with other texts; all other bytes are kept."""


# -- JSON ------------------------------------------------------------------------------------------------------------


def leaves_of(raw: bytes | memoryview, field: str, *, observed: bool = False) -> Sequence[Leaf]:
    """The strings of a message or member in JSON; `observed`: none of them may be changed. Raises InvalidJson."""
    walk = _Walk()
    walk.walk(load(raw, field), (), _Mode.OBSERVED if observed else _Mode.PART)
    return walk.found


JSON: Final = Strings(leaves_of, changed)


class _Mode(Enum):
    PART = "part"
    DATA = "data"
    OBSERVED = "observed"
    SIGNED = "signed"
    """The data of a call that a signature covers."""
    KEPT = "kept"
    ANY = "any"
    """A body of an unknown kind."""


_USES: Final = {_Mode.OBSERVED: Use.OBSERVED, _Mode.SIGNED: Use.SIGNED}
"""What strings are in a list of these modes; in others they are text."""


class _Pairs(dict[str, Any]):
    """An object with all members that its text has: of several with one name `get` knows the last, as most readers."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


class _Walk:
    """Counts the strings of a decoded value in the order of its text, and gathers those that are text."""

    def __init__(self) -> None:
        self.found: list[Leaf] = []
        self._place = 0

    def walk(self, value: Any, path: Path, mode: _Mode) -> None:
        kind = type(value)
        if kind is str:
            if mode is not _Mode.KEPT and value:
                self.found.append(Leaf(self._place, path, value, _USES.get(mode, Use.TEXT)))
            self._place += 1
        elif kind is dict or kind is _Pairs:
            if (mode is _Mode.PART or mode is _Mode.ANY) and _is_observed(value):
                mode = _Mode.OBSERVED
            for name, member in value.items():
                if mode is _Mode.ANY and len(name) >= LEAST_NAME:
                    self.found.append(Leaf(self._place, path, name, Use.TEXT))
                self._place += 1
                of_member = type(member)
                if of_member is str:
                    self._string(value, name, member, path, mode)
                elif of_member is dict or of_member is list or of_member is _Pairs:
                    self.walk(member, (*path, name), _inside(value, name, mode))
        elif kind is list:
            for index, member in enumerate(value):
                self.walk(member, (*path, index), mode)

    def body(self, value: Any, texts: Collection[str]) -> None:
        """Walk the body of a prompt, in whose members `texts` the strings are text."""
        for name, member in value.items() if isinstance(value, dict) else ():
            self._place += 1
            self.walk(member, (name,), _Mode.PART if name in texts else _Mode.OBSERVED)

    def _string(self, part: dict[str, Any], name: str, text: str, path: Path, mode: _Mode) -> None:
        use = _use(part, name, text, mode)
        if use is not None and text:
            if use is Use.FILE:
                text = _decoded(text)
            self.found.append(Leaf(self._place, (*path, name), text, use))
        self._place += 1


def _is_observed(part: dict[str, Any]) -> bool:
    """Whether a part is covered by a signature, or is a provider's own summary of what came before."""
    kind = part.get("type")
    if type(kind) is not str:
        return _is_signed(part, _THOUGHT_SIGNATURES)
    if "compaction" in kind:
        return True
    thinks = "thinking" in kind or "reasoning" in kind
    return _is_signed(part, _THINKING_SIGNATURES if thinks else _THOUGHT_SIGNATURES)


def _is_signed(part: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether a part, or what it holds for its provider, has a signature under one of these names."""
    if any(_is_signature(part.get(name)) for name in names):
        return True
    for member in _WITH_SIGNATURES:
        options = part.get(member)
        for of_provider in options.values() if isinstance(options, dict) else ():
            if isinstance(of_provider, dict) and any(_is_signature(of_provider.get(name)) for name in names):
                return True
    return False


def _is_signature(value: Any) -> bool:
    return type(value) is str and value != "" and value not in _DUMMY_SIGNATURES


def _is_signed_reasoning(part: dict[str, Any]) -> bool:
    """Whether a part with reasoning in Bedrock's shape is signed."""
    reasoning = part.get("reasoningContent")
    text = reasoning.get("reasoningText") if isinstance(reasoning, dict) else None
    return isinstance(text, dict) and _is_signature(text.get("signature"))


def _inside(part: dict[str, Any], name: str, mode: _Mode) -> _Mode:
    """What the strings of an object or list are that is a part's member."""
    if mode is _Mode.ANY:
        return _Mode.OBSERVED if name == "reasoningContent" and _is_signed_reasoning(part) else mode
    if mode is _Mode.PART:
        if name in _OPTIONS or (name == "reasoningContent" and _is_signed_reasoning(part)):
            return _Mode.OBSERVED
        kind = part.get("type") if name == "value" else None
        if name in _DATA or (type(kind) is str and kind in _JSON_OUTPUTS):
            return _Mode.DATA
    if mode is _Mode.OBSERVED and name in _ARGUMENTS:
        return _Mode.SIGNED
    if name in _SIGNED and mode not in {_Mode.DATA, _Mode.SIGNED}:
        return _Mode.KEPT
    return mode


def _use(part: dict[str, Any], name: str, text: str, mode: _Mode) -> Use | None:
    """What a string is that is a part's member; None: no text."""
    if mode is _Mode.DATA:
        return Use.TEXT
    if mode is _Mode.ANY:
        return _of_any(part, name, text)
    if mode is _Mode.SIGNED or (mode is _Mode.OBSERVED and name in _ARGUMENTS):
        return Use.SIGNED
    if mode is _Mode.KEPT or name in _SIGNED or name in _KEPT:
        return None
    if name in _BLOBS or name in _ADDRESSES:
        return _of_blob(part, name, text, mode)
    if mode is _Mode.OBSERVED:
        return Use.OBSERVED
    return Use.ARGUMENTS if name == "arguments" else Use.TEXT


def _of_any(part: dict[str, Any], name: str, text: str) -> Use | None:
    """What a string is in a body of an unknown kind; None: a file."""
    if name in _SIGNED:
        return Use.OBSERVED
    if name == "data" and _of_blob(part, name, text, _Mode.PART) is Use.FILE:
        return Use.FILE
    if _is_file(name, text):
        return None
    return Use.ARGUMENTS if name == "arguments" else Use.TEXT


def _of_blob(part: dict[str, Any], name: str, text: str, mode: _Mode) -> Use | None:
    """What a file's content or address is."""
    if mode is _Mode.PART and name == "data" and part.get("type") == "text":
        return Use.TEXT
    if text[:5] == "data:":
        return None
    if name in _ADDRESSES or "://" in text[:16]:
        return Use.OBSERVED
    plain = (part.get("mimeType") or part.get("mime_type")) == "text/plain"
    return Use.FILE if mode is _Mode.PART and name == "data" and plain and _decoded(text) else None


def _decoded(data: str) -> str:
    """The text in base64, in either alphabet; empty if it is no text."""
    try:
        return base64.b64decode(data.translate(_STANDARD) + "=" * (-len(data) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


_STANDARD: Final = str.maketrans("-_", "+/")


def in_string(leaf: Leaf, edits: Sequence[Edit]) -> Sequence[Edit]:
    """Edits of a leaf's text as edits of its string; a file's content is encoded again."""
    if leaf.use is not Use.FILE:
        return edits
    encoded = base64.b64encode(applied(leaf.text, edits).encode()).decode()
    return [Edit(0, _TO_THE_END, encoded)]


_TO_THE_END: Final = 1 << 62


# -- a whole body ----------------------------------------------------------------------------------------------------

LEAST_NAME: Final = 8
"""Characters of a member's name from which on it is looked at, in a body of an unknown kind: no secret is shorter."""
_LEAST_BLOB: Final = 1_024
"""Characters in base64 that are a file, where the name of their member says so: twenty milliseconds of sound."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def leaves_of_any(raw: bytes | memoryview, field: str) -> Sequence[Leaf]:
    """The strings of JSON of an unknown kind: all are text, names of members too, but signed parts and files.

    Raises InvalidJson, and TooLarge where decoding it would take too much memory for its size.
    """
    walk = _Walk()
    walk.walk(_load_any(raw, field), (), _Mode.ANY)
    return walk.found


def leaves_of_body(raw: bytes | memoryview, field: str, texts: Collection[str]) -> Sequence[Leaf]:
    """The strings of a prompt's body: those in the members `texts` as in a message, others observed.

    Raises as `leaves_of_any`.
    """
    walk = _Walk()
    walk.body(_load_any(raw, field), texts)
    return walk.found


def _load_any(raw: bytes | memoryview, field: str) -> Any:
    try:
        return load(raw, field)
    except AmbiguousJson:
        return load_all(raw, field)


def _is_file(name: str, text: str) -> bool:
    """Whether a string is a file in base64, or an address that is one."""
    if text[:5] == "data:":
        return ";base64," in text[:_DATA_HEAD]
    return name in _FILES and len(text) >= _LEAST_BLOB and _BASE64.fullmatch(text) is not None


_FILES: Final = _BLOBS | {"b64_json"}
_DATA_HEAD: Final = 256
"""Characters of such an address before its data, at most."""


# -- JSON in a string ------------------------------------------------------------------------------------------------


class NestedString(NamedTuple):
    """A string of JSON in a string."""

    place: int
    text: str
    name: str
    """Of the member that it is the value of, or in the list of; empty: of none, or it is itself a name."""


def nested(text: str, *, keys: bool = False) -> Sequence[NestedString] | None:
    """The strings of a text that is a JSON object or array; None if it is neither.

    `keys`: those too that are names of members.
    """
    start = text.lstrip(" \t\r\n")[:1]
    if start not in ("{", "["):
        return None
    try:
        value = load(utf8(text), "text")
    except (InvalidJson, TooLarge, UnicodeEncodeError):
        return None
    return values_of(value, keys=keys)


def values_of(value: Any, *, keys: bool = False) -> Sequence[NestedString]:
    """The strings of a decoded value; `keys`: those too that are names of members."""
    found: list[NestedString] = []
    place = 0

    def walk(value: Any, of: str) -> None:
        nonlocal place
        kind = type(value)
        if kind is str:
            found.append(NestedString(place, value, of))
            place += 1
        elif kind is dict:
            for name, member in value.items():
                if keys:
                    found.append(NestedString(place, name, ""))
                place += 1
                walk(member, name)
        elif kind is list:
            for member in value:
                walk(member, of)

    walk(value, "")
    return found


def values_in(raw: bytes) -> Sequence[tuple[int, str]] | None:
    """The strings of JSON that are no names, with their places; None: it is no JSON.

    If two parsers may read it differently, its strings are those of its text: of members with the same name all.
    """
    try:
        return [(place, text) for place, text, _ in values_of(load(raw, "text"))]
    except AmbiguousJson:
        plain = readable(raw)
    except (InvalidJson, TooLarge):
        return None
    try:
        orjson.loads(plain)
    except orjson.JSONDecodeError as error:
        raise_if_out_of_memory(error)
        return None
    return values_of_text(plain)


def ambiguous_leaves(raw: bytes | memoryview, field: str, *, observed: bool = False) -> Sequence[Leaf]:
    """The strings of JSON that two parsers may read differently, of members with one name all; as `leaves_of`.

    So whichever reading a parser chooses, each string in it was looked at. Raises InvalidJson.
    """
    walk = _Walk()
    walk.walk(load_all(raw, field), (), _Mode.OBSERVED if observed else _Mode.PART)
    return walk.found


def load_all(raw: bytes | memoryview, field: str) -> Any:
    """Decode JSON with all members of an object that have one name. Numbers are not read. Raises InvalidJson."""
    plain = readable(raw)
    try:
        orjson.loads(plain)
    except orjson.JSONDecodeError as error:
        raise_if_out_of_memory(error)
        raise InvalidJson(f"{field} is not JSON", field=field) from None
    try:
        return json.loads(plain, object_pairs_hook=_Pairs, parse_int=_no_number, parse_float=_no_number)
    except RecursionError:
        raise too_deep(field) from None


def _no_number(_: str) -> None:
    """Replace a number, which may have more digits than Python reads."""
