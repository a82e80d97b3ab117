"""What Bedrock's Converse accepts of a body, by its API reference and by what its errors say.

Its rules: the first message is the user's and roles alternate; content is an array of blocks, each with one member; a
text is not blank; the results of all calls of a turn, and no others, stand in the next message; with calls or results
in the history, tools are defined. What only some models take (a source in S3, say) is no rule of messages. Source: the
API reference of Converse, ContentBlock and ToolResultBlock, recorded 400s, and the texts of others that issues quote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.bedrock_converse_history import history
from tests.conformance.case import Case


def defects(body: Mapping[str, Any]) -> list[str]:
    """Say what the provider would refuse; nothing of a body that it takes."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["messages is no array of messages"]
    found = list(_system(body.get("system")))
    for index, message in enumerate(messages):
        found += _message(message, f"messages[{index}]")
    if found:
        return found
    found = list(_turns(messages))
    kinds = {kind for message in messages for block in message["content"] for kind in block}
    tools = body.get("toolConfig")
    if kinds & {"toolUse", "toolResult"} and not (isinstance(tools, Mapping) and tools.get("tools")):
        found.append("toolConfig is not defined, and messages hold toolUse or toolResult")
    return found


def _system(system: Any) -> Iterator[str]:
    if system is None:
        return
    if not isinstance(system, list):
        yield "system is no array"
        return
    for index, block in enumerate(system):
        yield from _block(block, f"system[{index}]")


def _message(message: Any, where: str) -> list[str]:
    if not isinstance(message, Mapping) or message.get("role") not in {"user", "assistant"}:
        return [f"{where} is no message of the user or the assistant"]
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return [f"{where}.content is no array of blocks"]
    found: list[str] = []
    for index, block in enumerate(content):
        at = f"{where}.content[{index}]"
        found += _block(block, at)
        if not found and "toolUse" in block:
            found += _use(block["toolUse"], at)
        elif not found and "toolResult" in block:
            found += _result(block["toolResult"], at)
    kinds = {kind for block in content if isinstance(block, Mapping) for kind in block}
    if "document" in kinds and "text" not in kinds:
        found.append(f"{where} has a document and no text")
    return found


def _block(block: Any, where: str) -> Iterator[str]:
    if not isinstance(block, Mapping) or len(block) != 1:
        yield f"{where} has not exactly one member"
    elif "text" in block and not (isinstance(block["text"], str) and block["text"].strip()):
        yield f"{where}.text is blank"


def _use(use: Mapping[str, Any], where: str) -> Iterator[str]:
    if not (use.get("toolUseId") and use.get("name")):
        yield f"{where}.toolUse has no id or name"
    if not isinstance(use.get("input"), Mapping):
        yield f"{where}.toolUse.input is no object"


def _result(result: Mapping[str, Any], where: str) -> Iterator[str]:
    content = result.get("content")
    if not isinstance(content, list):
        yield f"{where}.toolResult.content is no array"
        return
    if not content and result.get("status") == "error":
        yield f"{where}.toolResult.content is empty, and its status is error"
    for index, block in enumerate(content):
        yield from _block(block, f"{where}.toolResult.content[{index}]")
        if "video" in block:  # recorded, of a model that does take videos elsewhere
            yield f"{where}.toolResult.content[{index}] is a video"


def _turns(messages: list[Any]) -> Iterator[str]:
    """What is wrong from message to message."""
    calls: Counter[str] = Counter()
    for index, message in enumerate(messages):
        if message["role"] != ("assistant" if index % 2 else "user"):
            yield f"messages[{index}]: the roles do not alternate, the user first"
        results = Counter(block["toolResult"].get("toolUseId") for block in message["content"] if "toolResult" in block)
        uses = Counter(block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block)
        if message["role"] == "assistant":
            if results - uses:
                yield f"messages[{index}]: the model answers a call that it did not make"
            calls = uses - results  # the server's own calls are answered where they stand
            if any(count > 1 for count in uses.values()):
                yield f"messages[{index}]: two calls have one id"
        else:
            if results != calls:
                yield f"messages[{index}]: results of other calls than those of the message before"
            if uses:
                yield f"messages[{index}]: the user calls a tool"
            calls = Counter()


CASE = Case(
    format="bedrock_converse",
    defects=defects,
    history=history,
    traffic="bedrock.converse",
    structural=("extraneous key [toolResult]",),
    heads=({}, {"system": []}, {"system": [{"text": "You are careful."}, {"cachePoint": {"type": "default"}}]}),
)
