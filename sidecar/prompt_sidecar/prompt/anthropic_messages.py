"""Anthropic's Messages API.

A message is `{"role", "content"}` with a string or an array of blocks. Calls are `tool_use` blocks whose input is an
object; results are `tool_result` blocks that open the next user turn. The system prompt is a member of the body, a
string or an array of text blocks. Cache marks move from call to call, so they are not part of a message's identity.

From Opus 4.8 on models also take system messages in the history, and agents use them. Where one is accepted is
restricted: it "must immediately follow a `user` turn (or an `assistant` turn ending in a server tool result), and must
either be the last entry in `messages` or be immediately followed by an `assistant` turn", never first and never between
a call and its result. So one is dropped with its iteration, and never alone. The page says that consecutive ones "are
accepted and treated as a single system section"; earlier copies of the page, and the page for Amazon Bedrock, do not
allow them, so the sidecar makes none. A system message that changes the offered tools (`tool_addition`, `tool_removal`)
or the effort (`output_config`) applies from there on, so its iteration stays.

Tools with `defer_loading` are not in the model's context until a `tool_reference` names them: in the result of the
agent's own search, in that of the provider's, or in a `tool_addition`. The definition is read in its place, so that the
iteration of a reference stays.

"When the API receives a `compaction` block, all content blocks before it are ignored" ("Compaction at a token
threshold"): they take no tokens, and nothing of them is trimmed. Its `tool_changes` load the tools that were loaded
before it. One whose content is null "represents a failed compaction. The server treats these as no-ops" (the provider's
Python SDK 2.12.0, `BetaCompactionBlockParam`). The block of a compaction on demand is signed and must be first: nothing
may precede it.

Thinking blocks are signed: they are kept unchanged and in place, or removed. When they may or must be removed depends
on the model; see `thinking.py`. For models that bind thinking to the prompt before it our changing text is placed in
system messages in the history, and the `system` member stays constant.

Uses of the provider's own tools are in assistant messages: a `…_tool_use` block and its `…_tool_result`, which may be
in a later message (code that calls the client's tools ends after their results). Neither is edited, and both are
reported as a call and its answer, so that they are dropped together. They are recognised by the ending of the block's
type, so future server tools are paired too.

Source: the provider's API reference, messages, and its pages on tool use, the tool search tool, programmatic tool
calling, extended thinking, search results and prompt caching; on system messages its page "Mid-conversation system
messages and tool changes", copy of 2026-09-26, and the Bedrock user guide's "Mid-conversation system messages", read in
November 2026.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from prompt_sidecar.errors import AmbiguousJson, InvalidJson
from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.body import FIELD, Split
from prompt_sidecar.prompt.cache_marks import CacheMarks
from prompt_sidecar.prompt.format import Compaction, DeferredTools, Format, Placement, ReasoningRule, Replacement
from prompt_sidecar.prompt.gathering import Gathering, each_object, identity_of, loaded, role_of, without_reasoning
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role
from prompt_sidecar.prompt.jsontext import ValuesByPath, array_length, canonical, load, splice
from prompt_sidecar.prompt.parts import originals_at, string, text_in_place
from prompt_sidecar.prompt.system_member import add_block, block_member

_ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_SERVER_CALL: Final = "_tool_use"
_SERVER_RESULT: Final = "_tool_result"
_THINKING: Final[Mapping[Any, str]] = {"thinking": "signature", "redacted_thinking": "data"}
"""Types of reasoning blocks, with the name of the encrypted member."""
_TOOL_CHANGES: Final = frozenset({"tool_addition", "tool_removal"})
"""Types of blocks that offer a tool from there on, or withdraw it."""
_REFERENCE: Final = "tool_reference"
"""Type of a block at whose place the model sees a tool's definition."""
_SYSTEM_BLOCK: Final = "mid_conv_system"
"""Type of a block with the content of a system message."""
_COMPACTION: Final = "compaction"
"""Type of a block with a summary that replaces everything before it."""
_SEALED: Final = ("encrypted_content", "signature")
"""Members of that block with encrypted text."""
_EFFORT: Final = "output_config"
"""The member of a system message that sets the effort from there on."""
_KNOWN: Final = frozenset({"role", "content"})
_SYSTEM: Final = "json.body.system"


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = loaded(raw, field, identify=identify)
    reader = _Reader(role_of(value, field, _ROLES))
    reader.content(value.get("content"), field)
    reader.rest(value, _KNOWN)
    system = reader.role is Role.SYSTEM
    message = reader.message(identity_of(value, _comparable, identify=identify))
    return message._replace(
        tied=system,
        in_force=message.in_force
        or reader.changes_tools
        or bool(reader.loads)
        or (system and value.get(_EFFORT) is not None),
        loads=tuple(dict.fromkeys(reader.loads)),
    )


class _Reader(Gathering):
    """Gathers the items of one message in order."""

    def __init__(self, role: Role) -> None:
        super().__init__(role)
        self.changes_tools = False
        """Whether a block offers a tool from there on, or withdraws it."""
        self.loads: list[str] = []

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one block."""
        kind = part.get("type")
        if kind == "text" and type(part.get("text")) is str:
            self.text(part["text"], (*path, "text"))
        elif kind == "tool_use" and "input" in part:
            self._call(part, path)
        elif kind == "tool_result":
            self._result(part, path, field)
        elif kind == "image":
            self.items.append(Item(ItemKind.IMAGE, path, _comparable_text(part), raw_json=True))
        elif type(kind) is str and kind in _THINKING and self.role is Role.ASSISTANT:
            self.reasoning(
                path, string(part.get(_THINKING[kind])), [((*path, "thinking"), string(part.get("thinking")))]
            )
        elif kind == _COMPACTION and part.get("content") is not None:
            self.changes_tools, self.loads = False, _each_loaded(part.get("tool_changes"))
            seen: dict[str, Any] = {"type": kind, "content": part["content"]}
            self.compaction(seen, "".join(string(part.get(name)) for name in _SEALED), drops=True)
        else:
            self.other.append(_comparable_text(part))
            self.changes_tools = self.changes_tools or _changes_tools(part)
            self.loads += _loaded(part)
            if type(kind) is str and kind.endswith(_SERVER_CALL):
                self.calls.append(string(part.get("id")))
            elif type(kind) is str and kind.endswith(_SERVER_RESULT):
                self.answers.append(string(part.get("tool_use_id")))

    def _call(self, block: dict[str, Any], path: Path) -> None:
        call_id, name = string(block.get("id")), string(block.get("name"))
        self.calls.append(call_id)
        self.names.append(name)
        text = canonical(block["input"]).decode()
        self.items.append(Item(ItemKind.ARGUMENTS, (*path, "input"), text, raw_json=True, call_id=call_id, tool=name))

    def _result(self, block: dict[str, Any], path: Path, field: str) -> None:
        call_id = string(block.get("tool_use_id"))
        result = len(self.answers)
        self.answers.append(call_id)
        self._inside(block.get("content"), (*path, "content"), f"{field}.content", call_id, result)

    def _inside(self, content: Any, path: Path, field: str, call_id: str, result: int) -> None:
        """Read the content of a result, or of a document or search result in it."""
        if type(content) is str:
            self._text(content, path, call_id, result)
        elif type(content) is list:
            for part, at, where in each_object(content, path, field):
                self._part(part, at, where, call_id, result)
        elif content is not None:
            raise InvalidJson(f"{field} must be a string or an array", field=field)

    def _part(self, part: dict[str, Any], at: Path, field: str, call_id: str, result: int) -> None:
        kind, source = part.get("type"), part.get("source")
        if kind == "text" and type(part.get("text")) is str:
            self._text(part["text"], (*at, "text"), call_id, result)
        elif kind == "image":
            text = _comparable_text(part)
            self.items.append(Item(ItemKind.IMAGE, at, text, raw_json=True, call_id=call_id, result=result))
        elif kind == "search_result" and type(part.get("content")) is list:
            self.names += [string(part.get("title")), string(source)]
            first = len(self.items)
            self._inside(part["content"], (*at, "content"), f"{field}.content", call_id, result)
            self._cite(first)
        elif kind == "document" and type(source) is dict and _document_text(source):
            self.names += [string(part.get("title")), string(part.get("context"))]
            member, first = _document_text(source), len(self.items)
            self._inside(source[member], (*at, "source", member), f"{field}.source.{member}", call_id, result)
            self._cite(first)
        else:
            self.other.append(_comparable_text(part))
            self.loads += _loaded(part)

    def _cite(self, first: int) -> None:
        """Mark the items from the `first` on as those of a document."""
        self.items[first:] = [item._replace(cited=True) for item in self.items[first:]]

    def _text(self, text: str, path: Path, call_id: str, result: int) -> None:
        if text:
            self.items.append(Item(ItemKind.RESULT, path, text, call_id=call_id, result=result))


def _changes_tools(block: dict[str, Any]) -> bool:
    """Whether a block offers or withdraws a tool, by itself or inside a block of system instructions."""
    inner = block.get("content") if block.get("type") == _SYSTEM_BLOCK else None
    blocks = [block, *(inner if type(inner) is list else ())]
    return any(type(each) is dict and string(each.get("type")) in _TOOL_CHANGES for each in blocks)


def _loaded(block: dict[str, Any]) -> Iterator[str]:
    """Yield names of the tools whose definitions the model sees at the place of a block, or of references in it."""
    kind, inner = string(block.get("type")), block.get("content")
    if kind == _REFERENCE:
        yield string(block.get("tool_name")) or string(block.get("name"))
    elif kind == "tool_addition":
        yield from _each_loaded([block.get("tool")])
    elif kind == _SYSTEM_BLOCK:
        yield from _each_loaded(inner)
    elif kind.endswith(_SERVER_RESULT) and type(inner) is dict:
        yield from _each_loaded(inner.get("tool_references"))


def _each_loaded(blocks: Any) -> list[str]:
    return [
        name
        for block in (blocks if type(blocks) is list else ())
        if type(block) is dict and block.get("type") in {_REFERENCE, "tool_addition"}
        for name in _loaded(block)
    ]


def _is_deferred(tool: Any) -> bool:
    return type(tool) is dict and tool.get("defer_loading") is True


def _seen(tools: Any) -> Any:
    return [tool for tool in tools if not _is_deferred(tool)] if type(tools) is list else tools


def _definitions(tools: Any) -> dict[str, Any]:
    """Return the definitions of deferred tools, by name."""
    return {string(tool.get("name")): tool for tool in tools if _is_deferred(tool)} if type(tools) is list else {}


def _document_text(source: dict[str, Any]) -> str:
    """Return the member of a document's source with text, plain or as blocks; empty if there is none, as in a PDF."""
    member = {"text": "data", "content": "content"}.get(string(source.get("type")), "")
    shapes = (str,) if member == "data" else (str, list)
    return member if type(source.get(member)) in shapes else ""


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` accepted."""
    removed, others, label = without_reasoning(replacements)
    values = ValuesByPath(raw)
    edits = removed | {item.path: _value(values, item, text) for item, text in others.items()}
    if removed and len(removed) == array_length(raw, ("content",)):  # a message must have content
        edits[min(removed)] = orjson.dumps({"type": "text", "text": label})
    return splice(raw, edits)


def _value(values: ValuesByPath, item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return text_in_place(values.at(item.path), text or "")
    if item.kind is ItemKind.ARGUMENTS:
        return (text or "{}").encode()
    return orjson.dumps(text or "")


def add_system(value: bytes | None, text: str) -> bytes:
    """Add a text block to the system prompt; existing parts keep their bytes.

    Raises:
        InvalidJson: the body's `system` is neither a string nor an array.
    """
    block = orjson.dumps({"type": "text", "text": text})
    if value is None or value == b"null":
        return b"[" + block + b"]"
    opening = value[:1]
    if opening == b'"':
        present = b'{"type":"text","text":' + value + b"}"
        return b"[" + block + b"]" if value == b'""' else b"[" + present + b"," + block + b"]"
    if opening == b"[":
        return add_block(value, block)
    raise InvalidJson(f"{_SYSTEM} must be a string or an array of text blocks", field=_SYSTEM)


def system_message(text: str) -> bytes:
    """Return a system message inside the history, for models that accept one."""
    return orjson.dumps({"role": "system", "content": text})


def dropping_invalid(body: Split) -> Mapping[str, bytes]:
    """Return the member that asks Anthropic to drop invalid thinking, if the body requests thinking.

    Source: platform.claude.com, "Preserved thinking" (copy of 2026-09-26); the request also needs a beta header.
    """
    value = body.field("thinking") if body.is_object else None
    try:
        thinking = load(value, f"{FIELD}.thinking") if value is not None else None
    except AmbiguousJson:  # encoded again it would be another value
        return {}
    if type(thinking) is not dict or "block_binding" in thinking:
        return {}
    return {"thinking": orjson.dumps(thinking | {"block_binding": {"prefix_mismatch_behavior": "drop_block"}})}


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition, a member of `tools`."""
    return orjson.dumps({"name": name, "description": description, "input_schema": orjson.Fragment(parameters)})


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    kept = {name: member for name, member in value.items() if member is not None}
    kept["content"] = _blocks(kept.get("content"))
    return kept


def _blocks(content: Any) -> Any:
    """Return content as blocks without marks; a client may turn a string into one block to mark it."""
    if type(content) is str:
        return [{"type": "text", "text": content}]
    return [_without_mark(block) for block in content] if type(content) is list else content


def _without_mark(block: Any) -> Any:
    if type(block) is not dict:
        return block
    kept = {name: member for name, member in block.items() if name != "cache_control"}
    if kept.get("type") == "tool_result" and kept.get("content") is not None:
        kept["content"] = _blocks(kept["content"])
    return kept


def _comparable_text(block: dict[str, Any]) -> str:
    return canonical(_without_mark(block)).decode()


CALL_TOKENS: Final = 32
"""Framing tokens of a call, and of a result: on two recorded runs with the provider's own counts 41 and 43, which are
26 and 38 of ours after division by the calibration factor of the model."""

_MARKS: Final = CacheMarks(
    name="cache_control",
    value=b'{"type":"ephemeral"}',
    as_block=False,
    text=b'{"type":"text","text":',
    roles=frozenset({"user"}),
    at_newest=True,
    leads=frozenset(),
    places_itself=("cache_control",),
    takes=lambda _: True,
)
_UNBOUND: Final = tolerant(
    Format(
        name="anthropic_messages",
        read=read,
        write=write,
        originals=originals_at,
        tool=tool,
        system=block_member("system", add_system),
        alternating=True,  # Anthropic itself joins messages of one role, but gateways of its format may refuse them
        call_tokens=CALL_TOKENS,
        tool_fields=("tools",),
        deferred=DeferredTools(_seen, _definitions),
        compaction=Compaction.DROPS,
        reserve_fields=("max_tokens",),
        cache_marks=_MARKS,
        reasoning=ReasoningRule.CLOSED_TURNS,
    )
)
_BOUND: Final = replace(
    _UNBOUND, reasoning=ReasoningRule.BOUND, placement=Placement.divided(system_message), drop_invalid=dropping_invalid
)
FORMAT: Final = replace(_UNBOUND, bound=_BOUND)
