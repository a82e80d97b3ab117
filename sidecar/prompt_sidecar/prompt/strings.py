"""The strings of a message, and what may be done to each: changes inside a message are made on these.

A decoded message is walked in the order of its text. So the n-th string visited, keys included, is the n-th string
literal of the JSON, which `literals.py` changes. The same holds for JSON inside a string, such as the arguments of a
call, one level down.

A string's kind follows from the names on its path, as providers use them: a name has the same meaning in all formats.

    text        what a user, the model or a tool wrote, and the values of calls' arguments
    arguments   JSON in a string: the strings in it are texts
    file        a text in base64, also in an address (`data:`): looked at decoded
    observed    read by the provider and not to be changed: addresses, whatever a signature covers
    signed      the arguments of a call that a signature covers: as the model wrote them
    kept        names, ids, types, signatures, pictures: no text
"""

from __future__ import annotations

import base64
import binascii
import codecs
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
from prompt_sidecar.prompt.literals import Changes, TextEdit, applied, changed, values_of_text
from prompt_sidecar.prompt.readable import readable
from prompt_sidecar.prompt.utf8 import utf8
from prompt_sidecar.providers.messages import CACHE_MARKS

MAX_NESTED: Final = 4
"""Levels of nested JSON strings that are decoded; a call that passes JSON to a program that passes it on has two."""
_KEPT: Final = frozenset(
    {
        *("role", "type", "id", "name", "status", "phase", "namespace", "detail", "format", "encoding", "language"),
        *("call_id", "tool_call_id", "tool_use_id", "toolUseId", "toolCallId", "toolName", "approvalId", "outcome"),
        *("approval_request_id", "approvalRequestId", "mimeType", "mime_type", "mediaType", "media_type", "execution"),
        *("server_label", "serverLabel", "file_id", "fileId", "container_id", "ttl", "model"),
    }
)
"""Members of a part that are not text."""
_SIGNED: Final = frozenset(
    {
        *("signature", "encrypted_content", "encryptedContent", "redactedData", "reasoningEncryptedContent"),
        *("thoughtSignature", "thought_signature", "encrypted_index", "encrypted_stdout", "redactedContent"),
    }
)
"""Members with signatures and encrypted text."""
_BLOBS: Final = frozenset({"data", "bytes", "blob", "image", "file_data", "fileData", "video", "audio"})
_ADDRESSES: Final = frozenset({"url", "uri", "image_url", "file_url", "fileUri", "file_uri", "source", "href"})
_SPOKEN_NAMES: Final = frozenset({"system", "developer", "user", "assistant"})
"""Roles of messages whose `name` is the speaker's, and is text; for other roles it is the name of a tool."""
_KNOWN_TYPES: Final = frozenset(
    {
        # Messages: docs.claude.com/en/api/messages.
        *("text", "image", "document", "search_result", "tool_use", "tool_result", "server_tool_use", "mcp_tool_use"),
        *("container_upload", "tool_reference", "tool_addition", "tool_removal", "mid_conv_system", "fallback"),
        *("base64", "url", "file", "content", "char_location", "page_location", "content_block_location"),
        *("web_search_result", "web_search_result_location", "search_result_location", "web_fetch_result"),
        # Chat completions and responses: platform.openai.com/docs/api-reference.
        *("message", "function", "custom", "image_url", "input_audio", "refusal", "input_text", "input_image"),
        *("input_file", "output_text", "summary_text", "item_reference", "mcp_list_tools", "additional_tools"),
        *("mcp_approval_request", "mcp_approval_response", "computer_screenshot", "url_citation", "file_citation"),
        *("container_file_citation", "file_path", "audio", "video_url", "json_schema", "json_object"),
        # The AI SDK, ai-sdk.dev/docs/reference/ai-sdk-core/model-message; MCP, modelcontextprotocol.io/specification.
        *("media", "file-data", "file-url", "file-id", "image-data", "image-url", "image-file-id", "json"),
        *("error-text", "error-json", "execution-denied", "resource", "resource_link"),
    }
)
"""Types of parts and of objects in them, as providers' pages list them. A part of another type is read as any JSON: its
members are unknown, so none of them is skipped."""
_KNOWN_ENDS: Final = (
    "_call",
    "_output",
    "_tool_result",
    "_result_error",
    "tool-call",
    "tool-result",
    "-request",
    "-response",
)
_KNOWN_IN: Final = ("thinking", "reasoning", "compaction", "code_execution")
"""Endings of the types of calls, of their answers, and of the model's thoughts, and words in these types."""
_KNOWN_MEMBERS: Final = frozenset(
    {
        # Gemini: ai.google.dev/api/caching, Part.
        *("parts", "inlineData", "inline_data", "fileData", "file_data", "functionCall", "function_call", "toolCall"),
        *("functionResponse", "function_response", "executableCode", "executable_code", "videoMetadata"),
        *("codeExecutionResult", "code_execution_result", "video_metadata", "partMetadata", "mediaResolution"),
        *("toolResponse",),
        # Bedrock: docs.aws.amazon.com/bedrock/latest/APIReference, ContentBlock.
        *("content", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "searchResult"),
        *("reasoningContent", "cachePoint", "citationsContent", "source", "location"),
        # Parts without a type, as some agents write them.
        *("function", "custom", "image_url", "input_audio", "file", "resource", "text", "output", "value"),
    }
)
"""Members that give the kind of a part without a type; a part with another member is unknown."""
_SETTINGS: Final = frozenset(
    {
        *("tools", "functions", "toolConfig", "tool_config", "tool_choice", "toolChoice", "function_call"),
        *("mcp_servers", "model", "models", "previous_response_id", "conversation", "container", "cachedContent"),
        *("cached_content", *CACHE_MARKS, "providerOptions"),
    }
)
"""Members of a body that the provider acts on: tools with their credentials, names of stored objects. Only observed."""
_OPTIONS: Final = frozenset({*CACHE_MARKS, "providerOptions", "providerMetadata", "cachePoint", "_meta"})
"""Members for the provider, some with signatures in them."""
_THOUGHT_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
"""Members that cover the part that has them, whatever it is."""
_THINKING_SIGNATURES: Final = ("signature", "redactedData", *_THOUGHT_SIGNATURES)
"""Members that cover reasoning. Encrypted text of its own (`encrypted_content`) does not cover the summary next to it.
"""
_WITH_SIGNATURES: Final = ("providerOptions", "providerMetadata", "extra_content")
"""Members with an object for each provider, which may hold the part's signature."""
_DATA: Final = frozenset(
    {"input", "args", "response", "structuredContent", "json", "arguments", "action", "parameters"}
)
"""Members with the data of a call or a result: every string in it is text, whatever its name."""
_ARGUMENTS: Final = frozenset({"args", "input", "arguments"})
"""Members with a call's arguments, in parts that a signature may cover."""
_JSON_OUTPUTS: Final = frozenset({"json", "error-json"})
_DUMMY_SIGNATURES: Final = frozenset(
    spelling
    for text in ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
    for spelling in (text, base64.b64encode(text.encode()).decode())
)
"""Placeholders for a signature in the guides; the provider does not check them."""


class StringUse(Enum):
    """The kind of a string; see the module."""

    TEXT = "text"
    ARGUMENTS = "arguments"
    FILE = "file"
    OBSERVED = "observed"
    SIGNED = "signed"


class Leaf(NamedTuple):
    """One string of a message that is or may be text."""

    place: int
    """The number of the string literal in the message, keys included; in a typed message the number of the field."""
    path: Path
    text: str
    use: StringUse
    prefix: str = ""
    """For a file: the text before its base64."""


@dataclass(frozen=True, slots=True)
class Strings:
    """How the strings of a format's messages are found and changed."""

    leaves: Callable[[bytes | memoryview, str], Sequence[Leaf]]
    """Returns the strings of a message that are or may be text, in order. Raises InvalidJson; the error names the
    field."""
    changed: Callable[[bytes, Changes], bytes]
    """Returns the message with other texts; all other bytes are kept."""


# -- JSON ------------------------------------------------------------------------------------------------------------


def leaves_of(raw: bytes | memoryview, field: str) -> Sequence[Leaf]:
    """Return the strings of a message or system prompt in JSON. Raises InvalidJson."""
    walk = _Walk()
    walk.walk(load(raw, field), (), _Mode.PART)
    return walk.found


def leaves_of_member(raw: bytes | memoryview, field: str, name: str) -> Sequence[Leaf]:
    """Return the strings of another member of a prompt's body: text, except what the provider acts on.

    Raises as `leaves_of_any`.
    """
    walk = _Walk()
    walk.walk(_load_any(raw, field), (name,), _of_member(name))
    return walk.found


def is_setting(name: str) -> bool:
    """Whether the provider acts on a member of a body, so that nothing in it is changed."""
    return name in _SETTINGS


def _of_member(name: str) -> _Mode:
    return _Mode.OBSERVED if is_setting(name) else _Mode.ANY


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


_USES: Final = {_Mode.OBSERVED: StringUse.OBSERVED, _Mode.SIGNED: StringUse.SIGNED}
"""The use of strings in a list of these modes; in other modes they are text."""


class _Pairs(dict[str, Any]):
    """An object with all members of its text: for several with one name `get` returns the last, as most readers do."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


class _Walk:
    """Counts the strings of a decoded value in the order of its text, and collects those that are text."""

    def __init__(self) -> None:
        self.found: list[Leaf] = []
        self._place = 0

    def walk(self, value: Any, path: Path, mode: _Mode) -> None:
        kind = type(value)
        if kind is str:
            if mode is not _Mode.KEPT and value:
                self.found.append(Leaf(self._place, path, value, _USES.get(mode, StringUse.TEXT)))
            self._place += 1
        elif kind is dict or kind is _Pairs:
            if (mode is _Mode.PART or mode is _Mode.ANY) and _is_observed(value):
                mode = _Mode.OBSERVED
            elif mode is _Mode.PART and _is_new(value):
                mode = _Mode.ANY
            for name, member in value.items():
                if mode is _Mode.ANY and len(name) >= LEAST_NAME:
                    self.found.append(Leaf(self._place, path, name, StringUse.TEXT))
                self._place += 1
                of_member = type(member)
                if of_member is str:
                    self._string(value, name, member, path, mode)
                elif of_member is dict or of_member is list or of_member is _Pairs:
                    inside = _inside(value, name, mode)
                    if inside is _Mode.PART and name not in _KNOWN_MEMBERS and _is_block(value, member, path):
                        inside = _Mode.ANY
                    self.walk(member, (*path, name), inside)
        elif kind is list:
            for index, member in enumerate(value):
                self.walk(member, (*path, index), mode)

    def body(self, value: Any, texts: Collection[str]) -> None:
        """Walk the body of a prompt; the strings in its members `texts` are text."""
        for name, member in value.items() if isinstance(value, dict) else ():
            self._place += 1
            self.walk(member, (name,), _Mode.PART if name in texts else _of_member(name))

    def _string(self, part: dict[str, Any], name: str, text: str, path: Path, mode: _Mode) -> None:
        use = _use(part, name, text, mode)
        if use is not None and text:
            prefix = ""
            if use is StringUse.FILE:
                prefix, text = _prefix(text), _decoded(text)
            self.found.append(Leaf(self._place, (*path, name), text, use, prefix))
        self._place += 1


def _is_observed(part: dict[str, Any]) -> bool:
    """Whether a part is covered by a signature, or is a provider's own summary of earlier messages."""
    kind = part.get("type")
    if type(kind) is not str:
        return _is_signed(part, _THOUGHT_SIGNATURES)
    if "compaction" in kind:
        return True
    thinks = "thinking" in kind or "reasoning" in kind
    return _is_signed(part, _THINKING_SIGNATURES if thinks else _THOUGHT_SIGNATURES)


def _is_new(part: dict[str, Any]) -> bool:
    """Whether a part has an unknown type."""
    kind = part.get("type")
    if type(kind) is not str or kind in _KNOWN_TYPES or kind.endswith(_KNOWN_ENDS):
        return False
    return not any(each in kind for each in _KNOWN_IN)


def _is_block(part: dict[str, Any], member: Any, path: Path) -> bool:
    """Whether an object in a list gives its kind by the name of a member, and this is that member."""
    return (
        type(member) is not list and bool(path) and type(path[-1]) is int and "type" not in part and "role" not in part
    )


def _is_signed(part: dict[str, Any], names: Sequence[str]) -> bool:
    """Whether a part, or its data for its provider, has a signature under one of these names."""
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
    """Return the mode for the strings of an object or list that is a part's member."""
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


def _use(part: dict[str, Any], name: str, text: str, mode: _Mode) -> StringUse | None:
    """Return the use of a string that is a part's member; None if it is not text."""
    if mode is _Mode.DATA:
        return StringUse.TEXT
    if mode is _Mode.ANY:
        return _of_any(part, name, text)
    if mode is _Mode.SIGNED or (mode is _Mode.OBSERVED and name in _ARGUMENTS):
        return StringUse.SIGNED
    if name == "name" and mode is _Mode.PART and part.get("role") in _SPOKEN_NAMES:
        return StringUse.TEXT
    if mode is _Mode.KEPT or name in _SIGNED or name in _KEPT:
        return None
    if name in _BLOBS or name in _ADDRESSES:
        return _of_blob(part, name, text, mode)
    if mode is _Mode.OBSERVED:
        return StringUse.OBSERVED
    return StringUse.ARGUMENTS if name == "arguments" else StringUse.TEXT


def _of_any(part: dict[str, Any], name: str, text: str) -> StringUse | None:
    """Return the use of a string in a body of an unknown kind; None for a file that is not text."""
    if name in _SIGNED:
        return StringUse.OBSERVED
    if text[:5] == "data:" or name in _FILES:
        return _of_file(part, text, _LEAST_BLOB)
    return StringUse.ARGUMENTS if name == "arguments" else StringUse.TEXT


def _of_blob(part: dict[str, Any], name: str, text: str, mode: _Mode) -> StringUse | None:
    """Return the use of a file's content or address."""
    is_address = "://" in text[:16] and text[:5] != "data:"
    if mode is not _Mode.PART:
        return StringUse.OBSERVED if is_address or (name in _ADDRESSES and text[:5] != "data:") else None
    if name == "data" and part.get("type") == "text":
        return StringUse.TEXT
    if is_address:
        return StringUse.OBSERVED
    return _of_file(part, text)


def _of_file(part: dict[str, Any], text: str, least: int = 0) -> StringUse | None:
    """Return the use of a file in a body: a text in base64, a plain text, or None if it is not text.

    `least`: number of base64 characters from which it must be a file.
    """
    kind = part.get("type")
    if type(kind) is str and ("redacted" in kind or "encrypted" in kind):
        return None
    if text[:5] == "data:" and ";base64," not in text[:_DATA_HEAD]:
        return StringUse.TEXT
    if _decoded(text):
        return StringUse.FILE
    return None if text[:5] == "data:" or (len(text) >= least and _is_base64(text)) else StringUse.TEXT


def _prefix(text: str) -> str:
    """Return the text before the base64 of a file: nothing, or the head of its address."""
    return text[: text.index(",") + 1] if text[:5] == "data:" else ""


def _decoded(data: str) -> str:
    """Return the text in base64, in either alphabet; empty if it is not text.

    Pictures and sound show it at the start.
    """
    plain = data[len(_prefix(data)) :] if ";base64," in data[:_DATA_HEAD] else data
    try:
        start = codecs.getincrementaldecoder("utf-8")().decode(_bytes(plain[:_SAMPLE]))
        if _NO_TEXT.search(start) is not None:
            return ""
        found = _bytes(plain).decode()
    except (binascii.Error, ValueError):
        return ""
    return "" if "\0" in found else found


def _bytes(data: str) -> bytes:
    plain = data.translate(_STANDARD)
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _is_base64(text: str) -> bool:
    try:
        return not text.encode("ascii").translate(None, _ALPHABET)
    except UnicodeEncodeError:
        return False


_STANDARD: Final = str.maketrans("-_", "+/", "\r\n")
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\r\n"
_SAMPLE: Final = 1_024
"""Base64 characters of a file that are enough to recognise most non-texts; four for each three bytes."""
_NO_TEXT: Final = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f]")
"""Characters that no text has; the one that is left out begins a terminal's codes."""


def in_string(leaf: Leaf, edits: Sequence[TextEdit]) -> Sequence[TextEdit]:
    """Return edits of a leaf's text as edits of its string; a file's content is encoded again."""
    if leaf.use is not StringUse.FILE:
        return edits
    encoded = base64.b64encode(applied(leaf.text, edits).encode()).decode()
    return [TextEdit(0, _TO_THE_END, leaf.prefix + encoded)]


_TO_THE_END: Final = 1 << 62


# -- a whole body ----------------------------------------------------------------------------------------------------

LEAST_NAME: Final = 8
"""Least characters of a member's name that is scanned, in a body of an unknown kind: no secret is shorter."""
_LEAST_BLOB: Final = 1_024
"""Least base64 characters of a file, if the name of its member shows one: twenty milliseconds of sound."""


def leaves_of_any(raw: bytes | memoryview, field: str) -> Sequence[Leaf]:
    """Return the strings of JSON of an unknown kind: all are text, also member names, except signed parts and files.

    Raises InvalidJson, and TooLarge if decoding it would take too much memory for its size.
    """
    walk = _Walk()
    walk.walk(_load_any(raw, field), (), _Mode.ANY)
    return walk.found


def leaves_of_body(raw: bytes | memoryview, field: str, texts: Collection[str]) -> Sequence[Leaf]:
    """Return the strings of a prompt's body: in the members `texts` as in a message, others by `leaves_of_member`.

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


_FILES: Final = _BLOBS | {"b64_json"}
_DATA_HEAD: Final = 256
"""Most characters of such an address before its data."""


# -- JSON in a string ------------------------------------------------------------------------------------------------


class NestedString(NamedTuple):
    """A string of JSON inside a string."""

    place: int
    text: str
    name: str
    """Name of the member whose value, or list of values, it belongs to; empty if none, or if it is itself a name."""


def nested(text: str, *, keys: bool = False) -> Sequence[NestedString] | None:
    """Return the strings of a text that is a JSON object or array; None if it is neither.

    `keys`: include names of members.
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
    """Return the strings of a decoded value; `keys`: include names of members."""
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
    """Return the strings of JSON that are not names, with their places; None if it is not JSON.

    If two parsers may read it differently, all strings of its text are returned, also of members with the same name.
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


def ambiguous_leaves(raw: bytes | memoryview, field: str) -> Sequence[Leaf]:
    """Return all strings of JSON that two parsers may read differently, as `leaves_of`; also of repeated members.

    So each string of any parser's reading is included. Raises InvalidJson.
    """
    walk = _Walk()
    walk.walk(load_all(raw, field), (), _Mode.PART)
    return walk.found


def load_all(raw: bytes | memoryview, field: str) -> Any:
    """Decode JSON, keeping all members of an object with the same name. Numbers are not read. Raises InvalidJson."""
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
