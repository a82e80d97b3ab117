"""What OpenAI's chat completions, and two of its kin, accept of a body.

Its rules: each role has its kinds of content; an assistant's message says or calls something; all calls of a message
are answered by the tool messages right after it, each once, and tool messages stand nowhere else; a function's answer
names a function that was called. Some models take less: the first reasoning models no system or developer message,
those without ears no audio. Mistral's take messages in certain orders only. A part of a type that nobody knows is not
judged. Source: the API reference, chat completions, create; recorded 400s; the checks of PyPI's `mistral-common`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.case import Case
from tests.conformance.openai_chat_history import history

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PARTS = {
    "text": ("text", str),
    "image_url": ("image_url", (Mapping, str)),
    "input_audio": ("input_audio", Mapping),
    "file": ("file", Mapping),
    "refusal": ("refusal", str),
    "document_url": ("document_url", str),
}
"""Parts that are documented: the member of each that must be there, and its type."""
_TEXT_ONLY = frozenset({"system", "developer", "tool"})
_SAYS = ("tool_calls", "function_call", "refusal", "audio")
_NEXT = {
    "system": {"user", "assistant", "system"},
    "user": {"assistant", "system", "user"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool", "user"},
}
"""Mistral: which roles may follow one."""
_MISTRAL = ("mistral", "magistral", "codestral", "devstral", "ministral", "pixtral", "mixtral")


def defects(body: Mapping[str, Any]) -> list[str]:
    """Say what the provider would refuse; nothing of a body that it takes."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages is no array of messages"]
    model = str(body.get("model", ""))
    found: list[str] = []
    for index, message in enumerate(messages):
        found += _message(message, f"messages[{index}]", model)
    if found:
        return found
    found = [*_pairs(messages), *_functions(messages)]
    if any(name in model for name in _MISTRAL):
        found += _order(messages)
    return found


def _message(message: Any, where: str, model: str) -> Iterator[str]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in _ROLES:
        yield f"{where} is no message of a known role"
        return
    if role in {"system", "developer"} and model.startswith(("o1-mini", "o1-preview")):
        yield f"{where}: the model takes no message of the role {role}"
    content = message.get("content")
    if isinstance(content, list):
        if not content and not message.get("tool_calls"):
            yield f"{where}.content is empty"
        for index, part in enumerate(content):
            yield from _part(part, role, f"{where}.content[{index}]", model)
    elif content is None:
        says = role == "function" or (role == "assistant" and any(message.get(name) for name in _SAYS))
        if not says:
            yield f"{where} says nothing"
    elif not isinstance(content, str):
        yield f"{where}.content is neither text nor parts"
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield f"{where} answers no call"
    if role == "function" and not message.get("name"):
        yield f"{where} names no function"
    yield from _calls(message, where)


def _part(part: Any, role: str, where: str, model: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str):
        yield f"{where} is no part"
        return
    if kind not in _PARTS:
        return
    member, shape = _PARTS[kind]
    if not isinstance(part.get(member), shape):  # type: ignore[arg-type]
        yield f"{where}.{member} is missing or of another type"
    if kind != "text" and role in _TEXT_ONLY:
        yield f"{where} is a part that a message of the role {role} cannot have"
    if kind == "input_audio" and "audio" not in model:
        yield f"{where}: content blocks are expected to be either text or image_url type"


def _calls(message: Mapping[str, Any], where: str) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is not None and (message["role"] != "assistant" or not isinstance(calls, list) or not calls):
        yield f"{where}.tool_calls is no array of calls of an assistant"
        return
    for index, call in enumerate(calls or ()):
        at = f"{where}.tool_calls[{index}]"
        custom = isinstance(call, Mapping) and call.get("type") == "custom"
        called = call.get("custom" if custom else "function") if isinstance(call, Mapping) else None
        if not isinstance(called, Mapping) or not called.get("name") or not isinstance(call.get("id"), str):
            yield f"{at} has no name or no id"
        elif not isinstance(called.get("input" if custom else "arguments"), str):
            yield f"{at} has no arguments"
        elif not custom:
            yield from _arguments(called["arguments"], at)
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        yield from _arguments(legacy.get("arguments"), f"{where}.function_call")


def _arguments(text: Any, where: str) -> Iterator[str]:
    """Services that stand before other models decode them, so they must be an object."""
    try:
        right = isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        right = False
    if not right:
        yield f"{where}: the arguments are no JSON object"


def _pairs(messages: list[Any]) -> Iterator[str]:
    """Calls and their answers: a message that is no tool's ends the turn."""
    owed: Counter[str] = Counter()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if owed[message["tool_call_id"]] <= 0:
                yield f"messages[{index}] answers no call of the message before it"
            owed[message["tool_call_id"]] -= 1
            continue
        if sum(count for count in owed.values() if count > 0):
            yield f"messages[{index}] stands before calls are answered"
        owed = Counter(call["id"] for call in message.get("tool_calls") or ())
    if sum(count for count in owed.values() if count > 0):
        yield "the last calls are not answered"


def _functions(messages: list[Any]) -> Iterator[str]:
    """The retired functions: an answer stands after the call that it names."""
    called = ""
    for index, message in enumerate(messages):
        if message["role"] == "function":
            if message["name"] != called:
                yield f"messages[{index}] answers a function that was not called"
            called = ""
            continue
        if called:
            yield f"messages[{index}] stands before the function is answered"
        called = (message.get("function_call") or {}).get("name", "")


def _order(messages: list[Any]) -> Iterator[str]:
    for index in range(1, len(messages)):
        before, role = messages[index - 1]["role"], messages[index]["role"]
        if role not in _NEXT.get(before, {role}):
            yield f"messages[{index}]: unexpected role {role} after role {before}"
    last = messages[-1]
    asked = any(message["role"] not in {"system", "developer"} for message in messages)
    if asked and last["role"] not in {"user", "tool"} and not last.get("prefix"):
        yield f"the last role is {last['role']}, and must be user or tool"


CASE = Case(
    format="openai_chat",
    defects=defects,
    history=history,
    traffic="openai.chat",
    structural=("Content blocks are expected", "does not support 'developer'", "does not support 'system'"),
)
