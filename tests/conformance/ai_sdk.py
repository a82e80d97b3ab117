"""What the AI SDK accepts of the messages that it is given.

Its rules: every message is one of `modelMessageSchema`; the client's calls are answered before the next message of the
user or the system, and before the end, unless an approval is asked for them, which the SDK then sees to; a result or an
approval's answer stands after what it answers. A part of a type that nobody knows is not judged, though the schema of a
version that does not know it refuses it. Source: the package's schemas and its conversion of prompts, version 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.conformance.ai_sdk_history import history
from tests.conformance.case import Case

_PARTS = {
    "user": {"text", "image", "file"},
    "assistant": {"text", "file", "reasoning", "tool-call", "tool-result", "tool-approval-request"},
    "tool": {"tool-result", "tool-approval-response"},
}
_STRINGS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("image",),
    "file": ("data", "mediaType"),
    "reasoning": ("text",),
    "tool-call": ("toolCallId", "toolName"),
    "tool-result": ("toolCallId", "toolName"),
    "tool-approval-request": ("approvalId", "toolCallId"),
    "tool-approval-response": ("approvalId",),
    "media": ("data", "mediaType"),
    "file-data": ("data", "mediaType"),
    "file-url": ("url",),
    "image-data": ("data", "mediaType"),
    "image-url": ("url",),
}
"""For each documented part the members that must be strings."""
_OUTPUTS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "text": lambda output: isinstance(output.get("value"), str),
    "error-text": lambda output: isinstance(output.get("value"), str),
    "json": lambda output: "value" in output,
    "error-json": lambda output: "value" in output,
    "content": lambda output: isinstance(output.get("value"), list),
    "execution-denied": lambda output: isinstance(output.get("reason", ""), str),
}


def defects(body: Mapping[str, Any]) -> list[str]:
    """Say what the SDK would refuse; nothing of a body that it takes."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages must not be empty"]
    found = list(_system(body.get("system")))
    for index, message in enumerate(messages):
        found += _message(message, f"messages[{index}]")
    return found or [*_calls(messages), *_approvals(messages)]


def _system(system: Any) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    for message in system if isinstance(system, list) else [system]:
        if not isinstance(message, Mapping) or message.get("role") != "system":
            yield "system must be a string, a system message or an array of these"
        elif not isinstance(message.get("content"), str):
            yield "the content of a system message must be a string"


def _message(message: Any, where: str) -> Iterator[str]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in {"system", *_PARTS}:
        yield f"{where} is no message of a known role"
        return
    content, options = message.get("content"), message.get("providerOptions", {})
    if not isinstance(options, Mapping):
        yield f"{where}.providerOptions is no object"
    if isinstance(content, str):
        if role == "tool":
            yield f"{where}.content must be parts"
    elif role == "system" or not isinstance(content, list):
        yield f"{where}.content is neither text nor parts"
    else:
        for index, part in enumerate(content):
            yield from _part(part, role, f"{where}.content[{index}]")


def _part(part: Any, role: str, where: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str):
        yield f"{where} is no part"
        return
    if kind not in set().union(*_PARTS.values()):
        return
    if kind not in _PARTS[role]:
        yield f"{where} is a part that a message of the role {role} cannot have"
    yield from _strings(part, where)
    if kind == "tool-result":
        yield from _output(part.get("output"), f"{where}.output")
    if kind == "tool-approval-response" and not isinstance(part.get("approved"), bool):
        yield f"{where}.approved is missing"


def _strings(part: Mapping[str, Any], where: str) -> Iterator[str]:
    for member in _STRINGS.get(part["type"], ()):
        if not isinstance(part.get(member), str):
            yield f"{where}.{member} is no string"


def _output(output: Any, where: str) -> Iterator[str]:
    right = _OUTPUTS.get(str(output.get("type"))) if isinstance(output, Mapping) else None
    if right is None or not right(output):
        yield f"{where} is no output"
    elif output["type"] == "content":
        for index, part in enumerate(output["value"]):
            if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
                yield f"{where}.value[{index}] is no part"
            else:
                yield from _strings(part, f"{where}.value[{index}]")


def _parts(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else [part for part in content if part["type"] == kind]


def _calls(messages: list[Any]) -> Iterator[str]:
    owed: set[str] = set()
    asked: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] in {"user", "system"}:
            if owed:
                yield f"messages[{index}]: tool results are missing"
            owed, asked = set(), set()
        elif message["role"] == "assistant":
            calls = _parts(message, "tool-call")
            asked |= {call["toolCallId"] for call in calls}
            owed |= {call["toolCallId"] for call in calls if not call.get("providerExecuted")}
            owed -= {request["toolCallId"] for request in _parts(message, "tool-approval-request")}
        for result in _parts(message, "tool-result"):
            if result["toolCallId"] not in asked:
                yield f"messages[{index}]: a result has no call"
            asked.discard(result["toolCallId"])
            owed.discard(result["toolCallId"])
    if owed:
        yield "tool results are missing at the end"


def _approvals(messages: list[Any]) -> Iterator[str]:
    calls: set[str] = set()
    requests: set[str] = set()
    for index, message in enumerate(messages):
        calls |= {call["toolCallId"] for call in _parts(message, "tool-call")}
        for request in _parts(message, "tool-approval-request"):
            if request["toolCallId"] not in calls:
                yield f"messages[{index}]: an approval is asked for a call that is not there"
            requests.add(request["approvalId"])
        for response in _parts(message, "tool-approval-response"):
            if response["approvalId"] not in requests:
                yield f"messages[{index}]: an approval is given that was not asked for"


CASE = Case(
    format="ai_sdk",
    defects=defects,
    history=history,
    heads=({}, {"system": "Be brief."}, {"system": [{"role": "system", "content": "Be brief."}]}),
)
