"""The validator of Gemini's contents refuses what its rules are about."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.gemini_contents import defects
from tests.conformance.gemini_contents_history import history

Body = dict[str, Any]


def valid() -> Body:
    """A prompt of two turns of calls."""
    call = {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    answer = {"functionResponse": {"id": "a", "name": "f", "response": {"output": "x"}}}
    other, answered = copy.deepcopy(call), copy.deepcopy(answer)
    other["functionCall"]["id"] = answered["functionResponse"]["id"] = "b"  # type: ignore[index]
    return {
        "contents": [
            {"parts": [{"text": "task"}]},
            {"role": "model", "parts": [{"text": "so", "thought": True}, call, other]},
            {"role": "user", "parts": [answer]},
            {"role": "function", "parts": [answered]},
            {"role": "model", "parts": [copy.deepcopy(call)]},
            {"role": "user", "parts": [copy.deepcopy(answer)]},
        ]
    }


def drop(*places: int) -> Callable[[Body], None]:
    """Take contents out."""

    def change(body: Body) -> None:
        body["contents"] = [content for place, content in enumerate(body["contents"]) if place not in places]

    return change


def put(value: Any, *path: str | int) -> Callable[[Body], None]:
    """Put a value at a place."""

    def change(body: Body) -> None:
        target: Any = body
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


RESPONSE = ("contents", 5, "parts", 0, "functionResponse")


@pytest.mark.parametrize(
    "change",
    [
        put([], "contents"),
        put("text", "contents"),
        put("text", "contents", 0),
        put("narrator", "contents", 0, "role"),
        put([], "contents", 0, "parts"),
        put([{"thoughtSignature": "c2ln"}], "contents", 0, "parts"),
        put([{"text": 1}], "contents", 0, "parts"),
        put([{"inlineData": {"mimeType": "image/png", "data": "%"}}], "contents", 0, "parts"),
        put("text", "contents", 1, "parts", 1, "functionCall", "args"),
        put("", "contents", 1, "parts", 1, "functionCall", "name"),
        put("text", *RESPONSE, "response"),
        put("other", *RESPONSE, "name"),
        put("other", *RESPONSE, "id"),
        put([{"text": "x"}], *RESPONSE, "parts"),
        put([{"inlineData": {"mimeType": "video/mp4", "data": "AA=="}}], *RESPONSE, "parts"),
        put({"role": "user"}, "systemInstruction"),
        lambda body: body.update(systemInstruction={"parts": [{"text": "x"}]}, cachedContent="cachedContents/a"),
        drop(0),
        drop(1),
        drop(3),
        drop(2, 3),
        drop(4),
        drop(0, 1, 2, 3),
    ],
    ids=range(23),
)
def test_each_planted_defect_is_refused(change: Callable[[Body], None]) -> None:
    """Each change of a prompt that is taken makes one that is not."""
    body = valid()
    assert [] == defects(body)
    change(body)
    assert [] != defects(body)


def test_valid_prompts_have_no_defect() -> None:
    """Whole iterations may be missing; the last calls may be unanswered yet; made histories have no defect."""
    for places in ((1, 2, 3), (5,), (4, 5), (1, 2, 3, 4, 5)):
        body = valid()
        drop(*places)(body)
        assert [] == defects(body)
    for seed in range(50):
        assert [] == defects(history(random.Random(seed), seed % 12))
