"""Made-up histories in Bedrock's Converse, valid by the validator beside this file."""

from __future__ import annotations

import base64
import random
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

_TOOLS = ("read_file", "search", "run")
_CACHE_POINT = {"cachePoint": {"type": "default"}}


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body: every kind of block, parallel calls, cache points, with and without signed reasoning."""
    reasons = chance.random() < 0.5
    task = {"text": "Find out why the nightly build fails."}
    messages: list[dict[str, Any]] = [{"role": "user", "content": [task, *_asking(chance)]}]
    for iteration in range(iterations):
        ids = [f"tooluse_{iteration}_{number}" for number in range(chance.randint(1, 3))]
        messages.append({"role": "assistant", "content": _calling(chance, ids, reasons=reasons)})
        answers = [{"toolResult": _answer(chance, call_id)} for call_id in ids]
        if chance.random() < 0.2:
            answers += _asking(chance)
        messages.append({"role": "user", "content": answers})
        if chance.random() < 0.2:
            messages.append({"role": "assistant", "content": [{"text": prose(chance, 40)}]})
            messages.append({"role": "user", "content": _asking(chance)})
    if chance.random() < 0.3:
        messages[-1]["content"].append(_CACHE_POINT)
    tools = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in _TOOLS]
    return {"messages": messages, "toolConfig": {"tools": tools}, "inferenceConfig": {"maxTokens": 16}}


def _asking(chance: random.Random) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = [{"text": prose(chance, 16)}]
    if chance.random() < 0.2:
        content.append(_image(chance))
    if chance.random() < 0.2:
        content.append({"document": {"name": "notes", "format": "pdf", "source": {"bytes": picture(chance)}}})
    if chance.random() < 0.1:
        content.append({"guardContent": {"text": {"text": prose(chance, 6)}}})
    return content


def _image(chance: random.Random) -> dict[str, Any]:
    return {"image": {"format": "png", "source": {"bytes": picture(chance)}}}


def _calling(chance: random.Random, ids: list[str], *, reasons: bool) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if reasons:
        signature = base64.b64encode(chance.randbytes(60)).decode()
        content.append({"reasoningContent": {"reasoningText": {"text": prose(chance, 16), "signature": signature}}})
    if chance.random() < 0.5:
        content.append({"text": prose(chance, 24)})
    if chance.random() < 0.2:
        content.append({INVENTED: {"text": prose(chance, 8)}})
    for call_id in ids:
        given: dict[str, Any] = {"path": prose(chance, 3), "limit": chance.choice([1, 2.5, None])}
        if chance.random() < 0.3:
            given["content"] = prose(chance, 120)
        content.append({"toolUse": {"toolUseId": call_id, "name": chance.choice(_TOOLS), "input": given}})
    return content


def _answer(chance: random.Random, call_id: str) -> dict[str, Any]:
    words = chance.choice([15, 60, 250, 900])
    content: list[dict[str, Any]] = [
        chance.choice(
            [
                {"text": prose(chance, words)},
                {"json": {"output": prose(chance, words), "error": "none"}},
                {"json": {"rows": [{"line": number, "text": prose(chance, words // 5)} for number in range(5)]}},
                {"json": {"stdout": prose(chance, words), "stderr": prose(chance, 250), "note": prose(chance, 60)}},
                {"json": {}},
            ]
        )
    ]
    if chance.random() < 0.2:
        content.append(_image(chance))
    if chance.random() < 0.1:
        content.append({INVENTED: {"text": prose(chance, 8)}})
    answer: dict[str, Any] = {"toolUseId": call_id, "content": content}
    if chance.random() < 0.3:
        answer["status"] = chance.choice(["success", "error"])
    return answer
