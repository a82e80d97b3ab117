"""The provider that binds thinking, asked through Bedrock's Converse: other names for the same blocks.

"On Claude Fable 5.1, each thinking block is tied to the conversation that produced it" (AWS, Bedrock user guide,
preserved thinking); cache points are no part of it. A request is translated into Anthropic's messages and judged there,
and what is answered is translated back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tests.conformance.bound_thinking import BoundThinking
from tests.conformance.providers import Reply


class ConverseThinking:
    """A provider of one conversation with a model that binds thinking; Converse's bodies do not name it."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._bound = BoundThinking()

    def ask(self, body: bytes, recorded: Sequence[bytes]) -> Reply:
        """Judge a request body and answer it with the recorded messages; without any it is judged only."""
        request = orjson.loads(body)
        sent: dict[str, Any] = {"model": self._model}
        sent["messages"] = [_message(message) for message in request["messages"]]
        if request.get("system"):
            sent["system"] = _blocks(request["system"])
        if request.get("toolConfig"):
            sent["tools"] = [tool["toolSpec"] for tool in request["toolConfig"]["tools"] if "toolSpec" in tool]
        reply = self._bound.ask(orjson.dumps(sent), [orjson.dumps(_message(orjson.loads(raw))) for raw in recorded])
        answer = [orjson.dumps(converse(orjson.loads(raw))) for raw in reply.messages]
        return Reply(reply.refusals, answer, reply.remarks, carried=reply.carried, given=reply.given)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": message["role"], "content": _blocks(message["content"])}


def _blocks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Anthropic's blocks of Converse's; without the cache points."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        if "text" in block:
            found.append({"type": "text", "text": block["text"]})
        elif "reasoningContent" in block:
            thought = block["reasoningContent"]
            if "redactedContent" in thought:
                found.append({"type": "redacted_thinking", "data": thought["redactedContent"]})
            else:
                reasoning = thought["reasoningText"]
                found.append(
                    {"type": "thinking", "thinking": reasoning["text"], "signature": reasoning.get("signature", "")}
                )
        elif "toolUse" in block:
            call = block["toolUse"]
            found.append({"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]})
        elif "toolResult" in block:
            result = block["toolResult"]
            content = _blocks(result["content"])
            found.append({"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content})
        elif "cachePoint" not in block:
            found.append({"type": "other", "value": dict(block)})
    return found


def converse(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of Anthropic's in Converse's words."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": message["role"], "content": [_converse(block) for block in blocks]}


def _converse(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block["type"]
    if kind == "text":
        return {"text": block["text"]}
    if kind == "thinking":
        reasoning = {"text": block["thinking"], "signature": block["signature"]}
        return {"reasoningContent": {"reasoningText": reasoning}}
    if kind == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": block["data"]}}
    if kind == "tool_use":
        return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
    content = block["content"]
    parts = [{"text": content}] if isinstance(content, str) else [_converse(part) for part in content]
    return {"toolResult": {"toolUseId": block["tool_use_id"], "content": parts}}
