"""Made-up histories in Gemini's contents, valid by the validator beside this file."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any

from tests.conformance.case import INVENTED
from tests.conformance.words import picture, prose

_TOOLS = ("read_file", "search", "run")
_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "thoughtSignature": "thought_signature",
    "inlineData": "inline_data",
    "mimeType": "mime_type",
}
_NOT_OURS = frozenset({"args", "response", INVENTED})
"""Members whose names are a tool's or nobody's, and have no other spelling."""


def history(chance: random.Random, iterations: int) -> dict[str, Any]:
    """A request body: every kind of part, calls with and without ids, with and without signatures, either spelling."""
    with_ids, signed = chance.random() < 0.5, chance.random() < 0.5
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Find out why the nightly build fails."}]}]
    for iteration in range(iterations):
        calls = [_call(chance, f"call_{iteration}_{number}") for number in range(chance.randint(1, 3))]
        if not with_ids:
            for call in calls:
                del call["id"]
        contents.append({"role": "model", "parts": _calling(chance, calls, signed=signed)})
        answers = [{"functionResponse": _answer(chance, call)} for call in calls]
        contents.append({"role": chance.choice(["user", "user", "function"]), "parts": answers})
        if chance.random() < 0.2:
            contents.append({"role": "user", "parts": _interrupting(chance)})
        if chance.random() < 0.2:
            part = {"text": prose(chance, 40)} | _signature(chance, signed=signed)
            contents.append({"role": "model", "parts": [part]})
            contents.append({"role": "user", "parts": [{"text": prose(chance, 12)}]})
    body: dict[str, Any] = {
        "contents": contents,
        "tools": [{"functionDeclarations": [{"name": name, "description": name} for name in _TOOLS]}],
    }
    if chance.random() < 0.3:
        body["contents"] = _snake(contents)
    return body


def _call(chance: random.Random, call_id: str) -> dict[str, Any]:
    args: dict[str, Any] = {"path": prose(chance, 3), "limit": chance.choice([1, 2.5, None])}
    if chance.random() < 0.3:
        args["content"] = prose(chance, 120)
    return {"id": call_id, "name": chance.choice(_TOOLS), "args": args}


def _calling(chance: random.Random, calls: list[dict[str, Any]], *, signed: bool) -> list[dict[str, Any]]:
    """A turn of calls: thoughts, a text, and a signature beside the first call, as parallel calls have it."""
    parts: list[dict[str, Any]] = []
    if chance.random() < 0.3:
        parts.append({"text": prose(chance, 16), "thought": True})
    if chance.random() < 0.5:
        parts.append({"text": prose(chance, 24)})
    if chance.random() < 0.2:
        parts.append({"executableCode": {"language": "PYTHON", "code": "print(1)"}})
        parts.append({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}})
    if chance.random() < 0.2:
        parts.append({INVENTED: {"args": prose(chance, 8)}})
    parts += [{"functionCall": call} for call in calls]
    parts[-len(calls)] |= _signature(chance, signed=signed)
    return parts


def _signature(chance: random.Random, *, signed: bool) -> dict[str, Any]:
    if not signed:
        return {}
    real = base64.b64encode(chance.randbytes(60)).decode()
    return {"thoughtSignature": chance.choice([real, real, "skip_thought_signature_validator"])}


def _answer(chance: random.Random, call: Mapping[str, Any]) -> dict[str, Any]:
    words = chance.choice([15, 60, 250, 900])
    response: dict[str, Any] = chance.choice(
        [
            {"output": prose(chance, words)},
            {"status": "ok", "report": prose(chance, words)},
            {"stdout": prose(chance, words), "stderr": prose(chance, 250), "note": prose(chance, 60)},
            {"rows": [{"line": number, "text": prose(chance, words // 5)} for number in range(5)], "more": False},
            {},
        ]
    )
    answer = {"name": call["name"], "response": response}
    if "id" in call:
        answer["id"] = call["id"]
    if chance.random() < 0.2:
        answer["parts"] = [{"inlineData": {"mimeType": "image/png", "data": picture(chance)}}]
        if chance.random() < 0.3:
            answer["parts"].append({INVENTED: {"data": prose(chance, 8)}})
    return answer


def _interrupting(chance: random.Random) -> list[dict[str, Any]]:
    """What a user puts in after results: a text, an image, a file."""
    parts: list[dict[str, Any]] = [{"text": prose(chance, 16)}]
    if chance.random() < 0.5:
        parts.append({"inlineData": {"mimeType": "image/png", "data": picture(chance)}})
    if chance.random() < 0.3:
        parts.append({"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/film.mp4"}})
    return parts


def _snake(value: Any) -> Any:
    """The same in snake case, as some clients write it."""
    if isinstance(value, list):
        return [_snake(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {_SNAKE.get(name, name): inner if name in _NOT_OURS else _snake(inner) for name, inner in value.items()}
