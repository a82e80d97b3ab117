"""What OpenAI's responses take, by the API reference and by what it answers to requests that it refuses.

Its words for what it refuses: "No tool output found for function call", "No tool call found for function call output
with call_id", "Item of type 'reasoning' was provided without its required following item", "Duplicate item found with
id", "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'", "Invalid file data". A body that
continues a conversation which the provider keeps may answer calls that are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.case import Case
from tests.conformance.openai_responses_history import history

_ROLES = ("user", "assistant", "system", "developer")
_INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio")
_PARTS = {
    "user": _INPUT_PARTS,
    "system": _INPUT_PARTS,
    "developer": _INPUT_PARTS,
    "assistant": ("output_text", "refusal"),
}
_TEXTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_ANSWERED = ("function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call")
"""Calls that the client must answer."""
_OF_CLIENT = ("message", "additional_tools", "item_reference", "mcp_approval_response")


def defects(body: dict[str, Any]) -> list[str]:
    """Why the provider would refuse a body; empty if it would not."""
    found = list(_around(body))
    items = body.get("input")
    if isinstance(items, str):
        return found
    if not isinstance(items, list) or not items:
        return [*found, "input is neither a string nor an array of items"]
    for place, item in enumerate(items):
        if not isinstance(item, Mapping):
            found.append(f"input[{place}] is no object")
            continue
        found += [f"input[{place}]: {defect}" for defect in _item(item)]
    whole = [item for item in items if isinstance(item, Mapping)]
    if any(_kind(item) == "compaction_trigger" for item in whole[:-1]):
        found.append("The 'compaction_trigger' item must be the final input item.")
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    return [*found, *_pairs(whole, continues=continues), *_order(whole), *_twice(whole)]


def _around(body: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(body.get("instructions"), str | None):
        yield "instructions are no string"
    for tool in body.get("tools") or ():
        if tool.get("type") == "function" and not (
            tool.get("name") and isinstance(tool.get("parameters"), dict | None)
        ):
            yield "a function has no name or no parameters"


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def _item(item: Mapping[str, Any]) -> Iterator[str]:
    kind = _kind(item)
    if kind == "message":
        if item.get("role") not in _ROLES:
            yield "its role is none"
        yield from _content(item.get("content"), _PARTS.get(str(item.get("role")), ()))
    elif kind == "function_call":
        if not item.get("name") or not isinstance(item["name"], str):
            yield "a call without a name"
        if not _is_object(item.get("arguments")):
            yield "its arguments are no JSON object in a string"
    elif kind == "custom_tool_call" and not isinstance(item.get("input"), str):
        yield "its input is no string"
    elif kind in {"function_call_output", "custom_tool_call_output"}:
        yield from _content(item.get("output"), _INPUT_PARTS)
    elif kind == "computer_call_output":
        output = item.get("output")
        if not isinstance(output, Mapping) or output.get("type") != "computer_screenshot":
            yield "its output is no screenshot"
    elif kind == "local_shell_call_output" and not isinstance(item.get("output"), str):
        yield "its output is no string"
    elif kind == "shell_call_output":
        yield from _streams(item.get("output"))
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        yield "its summary is no array"
    paired = kind.endswith(("_call", "_call_output")) and kind.removesuffix("_output") in _ANSWERED
    if paired and not (isinstance(item.get("call_id"), str) and item["call_id"]):
        yield "it has no call_id"


def _streams(output: Any) -> Iterator[str]:
    if not isinstance(output, list):
        yield "its output is no array"
        return
    for ran in output:
        if not isinstance(ran.get("stdout"), str) or not isinstance(ran.get("stderr"), str) or "outcome" not in ran:
            yield "a part of its output lacks a stream or an outcome"


def _content(content: Any, allowed: tuple[str, ...]) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield "its content is neither a string nor an array"
        return
    for part in content:
        kind = part.get("type")
        if kind in (*_INPUT_PARTS, "output_text", "refusal") and kind not in allowed:
            yield f"{kind} is no part that it may have"
        if kind in _TEXTS and not isinstance(part.get(_TEXTS[kind]), str):
            yield f"{kind} has no text"
        if kind == "input_image" and not (part.get("image_url") or part.get("file_id")):
            yield "an image without one"
        file = part.get("file_data")
        if kind == "input_file" and isinstance(file, str) and file.startswith(("data:audio/", "data:video/")):
            yield "a file of a type that is not taken"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


def _pairs(items: list[Mapping[str, Any]], *, continues: bool) -> Iterator[str]:
    called: dict[str, bool] = {}
    """For each call made so far, whether it was answered."""
    must: set[str] = set()
    for item in items:
        kind, call_id = _kind(item), str(item.get("call_id"))
        if kind.endswith("_call") and "call_id" in item:
            called[call_id] = False
            must |= {call_id} if kind in _ANSWERED else set()
        elif kind.endswith("_output") and item.get("execution") != "server":
            if call_id not in called and not continues:
                yield f"no tool call found for {kind}"
            called[call_id] = True
    for call_id, answered in called.items():
        if call_id in must and not answered:
            yield "no tool output found for a call"


def _order(items: list[Mapping[str, Any]]) -> Iterator[str]:
    for place, item in enumerate(items):
        if _kind(item) != "reasoning":
            continue
        after = items[place + 1] if place + 1 < len(items) else {"type": "message", "role": "user"}
        kind = _kind(after)
        of_client = kind.endswith("_output") or (kind in _OF_CLIENT and after.get("role") != "assistant")
        if of_client and kind != "item_reference":
            yield f"input[{place}]: reasoning without the item that follows it"


def _twice(items: list[Mapping[str, Any]]) -> Iterator[str]:
    ids = [item["id"] for item in items if isinstance(item.get("id"), str) and _kind(item) != "item_reference"]
    if len(ids) != len(set(ids)):
        yield "duplicate item found"


CASE = Case(
    format="openai_responses",
    defects=defects,
    history=history,
    traffic="openai.responses",
    structural=("Invalid file data",),
    heads=(
        {},
        {"store": False},
        {"instructions": "You are careful.\n", "store": True},
        {"instructions": "Be brief.", "store": False},
    ),
)
