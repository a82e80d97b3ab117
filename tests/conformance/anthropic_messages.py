"""What Anthropic's messages accept of a body.

Its rules: the user is first; text is not blank; all calls of the assistant's turn are answered in the user's turn that
follows, once each and before anything else; the ids of one turn's calls differ; a server tool's result stands after its
call, and a call without one is taken only beside a call of the client's, which is served first; a message does not end
with thinking, and with thinking on the turn that is going on begins with it; an error's content is text; there are at
most four cache marks, none on thinking. Consecutive messages of a role are one turn. A block of an unknown type
is not judged. System messages in the history have rules of their own; see `_system_messages`.

Source: the API reference, messages; the guides on tool use, programmatic tool calling, extended thinking, prompt
caching, and mid-conversation system messages and tool changes; the texts of refusals that issues of the provider's own
SDKs quote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.conformance.anthropic_instructions import instructed
from tests.conformance.anthropic_messages_history import history
from tests.conformance.case import Case

_SYSTEM_BLOCKS = frozenset({"text", "tool_addition", "tool_removal"})
_TOOL_CHANGES = _SYSTEM_BLOCKS - {"text"}
_TURN_SCOPED = "next_user_message"
_ROLES = frozenset({"user", "assistant", "system"})
_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_THINKING = frozenset({"thinking", "redacted_thinking"})
_MEMBERS = {
    "text": ("text", str),
    "thinking": ("signature", str),
    "redacted_thinking": ("data", str),
    "image": ("source", Mapping),
    "document": ("source", Mapping),
    "search_result": ("content", list),
    "tool_use": ("input", Mapping),
    "tool_result": ("tool_use_id", str),
    "server_tool_use": ("input", Mapping),
    "mcp_tool_use": ("input", Mapping),
}
"""Blocks that are documented: the member of each that must be there, and its type."""
_MARKS = 4
_WITHOUT_SYSTEM = re.compile(r"claude-(?:instant|[23]|sonnet-4|haiku-4|opus-4(?!-[89])|sonnet-5(?!-5))")
"""Models that take no system message in the history: those before Opus 4.8, and Sonnet 5."""


def defects(body: Mapping[str, Any]) -> list[str]:
    """Say what the provider would refuse; nothing of a body that it takes."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages is no array of messages"]
    found = list(_system(body.get("system")))
    for index, message in enumerate(messages):
        found += _message(message, f"messages[{index}]", last=index == len(messages) - 1)
    if found:
        return found
    if messages[0]["role"] != "user":
        found.append("the first message is not the user's")
    turns = list(_turns(messages))
    found += [*_calls(turns), *_server_calls(turns), *_thinking(turns, body.get("thinking"))]
    found += _system_messages(messages, str(body.get("model", "")))
    if sum(_marks(body.get(name)) for name in ("tools", "system", "messages")) > _MARKS:
        found.append("there are more than four cache marks")
    return found


def _system(system: Any) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system is neither text nor blocks"
        return
    for index, block in enumerate(system):
        if not isinstance(block, Mapping) or block.get("type") != "text" or not str(block.get("text", "")).strip():
            yield f"system[{index}] is no block of text"


def _message(message: Any, where: str, *, last: bool) -> Iterator[str]:
    if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
        yield f"{where} is no message of a known role"
        return
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield f"{where}.content is blank"
    elif not isinstance(content, list):
        yield f"{where}.content is neither text nor blocks"
    elif not content and not (last and message["role"] == "assistant") and not _sets_effort(message):
        yield f"{where}.content is empty"
    else:
        for index, block in enumerate(content):
            yield from _block(block, f"{where}.content[{index}]")
        if message["role"] == "assistant" and content and content[-1].get("type") in _THINKING:
            yield f"{where} ends with thinking"


def _block(block: Any, where: str) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        yield f"{where} is no block"
        return
    if kind not in _MEMBERS:
        return
    member, shape = _MEMBERS[kind]
    if not isinstance(block.get(member), shape):
        yield f"{where}.{member} is missing or of another type"
    elif kind == "text" and not block["text"].strip():
        yield f"{where}: text content blocks must hold more than white space"
    elif kind in _THINKING and block.get("cache_control") is not None:
        yield f"{where}: thinking cannot be marked"
    elif kind.endswith("_use") and not (_ID.match(str(block.get("id", ""))) and block.get("name")):
        yield f"{where} has no name or no id"
    elif kind == "tool_result":
        yield from _result(block, where)
    elif kind == "document" and not str(block["source"].get("data", "x")):
        yield f"{where} is an empty document"


def _result(block: Mapping[str, Any], where: str) -> Iterator[str]:
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        yield f"{where}.content is neither text nor blocks"
        return
    for index, part in enumerate(content):
        yield from _block(part, f"{where}.content[{index}]")
        if block.get("is_error") and part.get("type") in {"image", "document"}:
            yield f"{where}: all content must be text if it is an error"


def _turns(messages: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Consecutive messages of a role as one turn, by role and blocks; a system message is a turn of its own."""
    role = ""
    blocks: list[Any] = []
    for message in messages:
        content = message["content"]
        if message["role"] != role or role == "system":
            if blocks:
                yield role, blocks
            role, blocks = message["role"], []
        blocks = [*blocks, *([{"type": "text", "text": content}] if isinstance(content, str) else content)]
    yield role, blocks


def _system_messages(messages: list[Any], model: str) -> Iterator[str]:
    """System messages in the history: where they may stand, what they may hold, and which models take them.

    "A `system` message that carries content (`text`, `tool_addition`, or `tool_removal` blocks) must immediately follow
    a `user` turn … or an `assistant` turn ending in a server tool result, and must precede an `assistant` turn or end
    the array. … `tool_addition` and `tool_removal` blocks are not accepted immediately after a paused `assistant` turn.
    … A message with empty `content` that only sets `output_config.effort` … is accepted anywhere in `messages` …
    Consecutive `system` messages are judged together". Source: the provider's page on mid-conversation system messages
    and tool changes, copy of 2026-09-26. Earlier copies, and the one for Amazon Bedrock, do not take two in a row: what
    an agent sends so passes, and none is made; see `worsened`.
    """
    roles = [message["role"] for message in messages]
    if "system" in roles and _WITHOUT_SYSTEM.search(model):
        yield f"role 'system' is not supported on this model: {model}"
    start = 0
    while start < len(messages):
        end = start
        while end < len(messages) and roles[end] == "system":
            yield from _instructions(messages[end], f"messages[{end}]")
            end += 1
        if end > start and not all(map(_sets_effort, messages[start:end])):
            yield from _section(messages, start, end)
        start = max(end, start + 1)


def _section(messages: list[Any], start: int, end: int) -> Iterator[str]:
    """Consecutive system messages, from `start` up to `end`, which are judged together."""
    where = f"messages[{start}]"
    before = messages[start - 1] if start else None
    if before is None or not (before["role"] == "user" or _paused(before)):
        yield f"{where}: role 'system' must follow a user's turn or a server tool's result"
    elif before["role"] != "user" and any(_kinds(message) & _TOOL_CHANGES for message in messages[start:end]):
        yield f"{where}: tools cannot be changed directly after a server tool's result"
    if end < len(messages) and messages[end]["role"] != "assistant":
        yield f"{where}: role 'system' must precede an assistant's turn or end the array"


def _instructions(message: Mapping[str, Any], where: str) -> Iterator[str]:
    """What one system message may hold."""
    kinds = _kinds(message)
    if not kinds <= _SYSTEM_BLOCKS:
        yield f"{where}: role 'system' supports text, tool_addition, and tool_removal blocks only"
    if message.get("clear_at") not in {None, "never", _TURN_SCOPED}:
        yield f"{where}.clear_at: Input should be 'next_user_message' or 'never'"
    scoped = message.get("clear_at") == _TURN_SCOPED
    if scoped and (kinds & _TOOL_CHANGES or message.get("output_config") is not None or _marks(message)):
        yield f"{where}: a turn-scoped system message supports unmarked text blocks only"


def _kinds(message: Mapping[str, Any]) -> set[str]:
    content = message["content"]
    return {"text"} if isinstance(content, str) else {block["type"] for block in content}


def _sets_effort(message: Mapping[str, Any]) -> bool:
    """Whether a message only sets the effort, which is taken anywhere."""
    return message["role"] == "system" and not message["content"] and message.get("output_config") is not None


def _paused(message: Mapping[str, Any]) -> bool:
    """Whether a message ends in a server tool's result."""
    blocks = message["content"]
    kind = blocks[-1]["type"] if isinstance(blocks, list) and blocks else ""
    return message["role"] == "assistant" and kind.endswith("_tool_result")


def worsened(sent: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """Say what of a returned body the provider takes, and an agent could not accept.

    Two system messages in a row that were not sent so, and changes of tools or of the effort that are gone, added or in
    another order: they apply to all that follows.
    """
    found = []
    if in_force(got) != in_force(sent):
        found.append("changes of tools or of the effort are not those that were sent")
    there = Counter(_neighbours(sent))
    found += ["two system messages stand in a row that were not sent so" for _ in (Counter(_neighbours(got)) - there)]
    return found


def in_force(body: Mapping[str, Any]) -> list[Any]:
    """The changes of tools and of the effort that a body's messages make, in order."""
    changes: list[Any] = []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        inner = [block["content"] for block in blocks if block.get("type") == "mid_conv_system"]
        changes += [block for part in (blocks, *inner) for block in part if block.get("type") in _TOOL_CHANGES]
        if message["role"] == "system" and message.get("output_config") is not None:
            changes.append(message["output_config"])
    return changes


def _neighbours(body: Mapping[str, Any]) -> Iterator[str]:
    """Each two system messages in a row, as text."""
    messages = body["messages"]
    for one, other in pairwise(messages):
        if one["role"] == other["role"] == "system":
            yield repr((one, other))


def _calls(turns: list[tuple[str, list[Any]]]) -> Iterator[str]:
    owed: Counter[str] = Counter()
    for number, (role, blocks) in enumerate(turns):
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if results and role != "user":
            yield f"turn {number}: results stand in the user's turns only"
        if Counter(results) != owed:
            yield f"turn {number}: its results are not those of the calls in the turn before"
        others = [index for index, block in enumerate(blocks) if block["type"] != "tool_result"]
        if results and others and min(others) < len(results):
            yield f"turn {number}: something stands before a result"
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(calls)) < len(calls):
            yield f"turn {number}: ids of calls must differ"
        owed = Counter(calls)
    if owed:
        yield "the last calls are not answered"


def _server_calls(turns: list[tuple[str, list[Any]]]) -> Iterator[str]:
    open_calls: dict[str, bool] = {}
    for number, (role, blocks) in enumerate(turns):
        if role != "assistant":
            continue
        waits = any(block["type"] == "tool_use" for block in blocks)
        for block in blocks:
            kind = block["type"]
            if kind in {"server_tool_use", "mcp_tool_use"}:
                open_calls[block["id"]] = waits
            elif kind.endswith("_tool_result") and open_calls.pop(str(block.get("tool_use_id")), None) is None:
                yield f"turn {number}: a server tool's result has no call before it"
        for call_id in [call_id for call_id, waiting in open_calls.items() if not waiting]:
            del open_calls[call_id]
            yield f"turn {number}: a server tool's call has no result"


def _thinking(turns: list[tuple[str, list[Any]]], thinking: Any) -> Iterator[str]:
    """With thinking on, the assistant's message whose calls were answered last begins with it."""
    on = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
    if not on or len(turns) < 2 or turns[-1][0] != "user":
        return
    answered = any(block["type"] == "tool_result" for block in turns[-1][1])
    if answered and turns[-2][1][0]["type"] not in _THINKING:
        yield "thinking is on, and the turn that is going on does not begin with it"


def _marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, Mapping):
        return 0
    return (value.get("cache_control") is not None) + _marks(value.get("content"))


CASE = Case(
    format="anthropic_messages", defects=defects, history=history, traffic="anthropic.messages", worsened=worsened
)
INSTRUCTED = replace(CASE, history=instructed)
"""The same with system messages in the history."""
