"""The validator of Bedrock's Converse refuses what its rules are about."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.bedrock_converse import defects
from tests.conformance.bedrock_converse_history import history
from tests.conformance.test_gemini_defects import put

Body = dict[str, Any]


def valid() -> Body:
    """A prompt of two turns of calls, one of which the provider runs itself."""
    uses = [{"toolUse": {"toolUseId": call_id, "name": "f", "input": {}}} for call_id in "abs"]
    results = [{"toolResult": {"toolUseId": call_id, "content": [{"text": "x"}]}} for call_id in "abs"]
    return {
        "messages": [
            {"role": "user", "content": [{"text": "task"}]},
            {"role": "assistant", "content": [{"reasoningContent": {}}, *uses, results[2]]},
            {"role": "user", "content": [*results[:2], {"cachePoint": {}}]},
            {"role": "assistant", "content": copy.deepcopy(uses[:1])},
            {"role": "user", "content": copy.deepcopy(results[:1])},
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]},
    }


def drop(*places: int) -> Callable[[Body], None]:
    """Take messages out."""

    def change(body: Body) -> None:
        body["messages"] = [message for place, message in enumerate(body["messages"]) if place not in places]

    return change


LAST = ("messages", 4, "content")
RESULT = (*LAST, 0, "toolResult")


@pytest.mark.parametrize(
    "change",
    [
        put([], "messages"),
        put("text", "messages", 0),
        put("system", "messages", 0, "role"),
        put("text", "messages", 0, "content"),
        put([], "messages", 0, "content"),
        put([{"text": " "}], "messages", 0, "content"),
        put([{"text": "a", "image": {}}], "messages", 0, "content"),
        put([{"document": {}}], "messages", 0, "content"),
        put("text", "messages", 3, "content", 0, "toolUse", "input"),
        put("", "messages", 3, "content", 0, "toolUse", "toolUseId"),
        put("other", *RESULT, "toolUseId"),
        put("text", *RESULT, "content"),
        put([{"text": ""}], *RESULT, "content"),
        put([{"video": {}}], *RESULT, "content"),
        lambda body: body["messages"][4]["content"][0]["toolResult"].update(content=[], status="error"),
        lambda body: body["messages"][4]["content"].append(body["messages"][4]["content"][0]),
        lambda body: body["messages"][3]["content"].append(body["messages"][3]["content"][0]),
        lambda body: body["messages"][3]["content"].append(body["messages"][2]["content"][1]),
        put([{"toolUse": {"toolUseId": "z", "name": "f", "input": {}}}], "messages", 0, "content"),
        lambda body: body.pop("toolConfig"),
        put({"tools": []}, "toolConfig"),
        put("text", "system"),
        put([{"text": ""}], "system"),
        drop(0),
        drop(1),
        drop(2),
        drop(3),
        drop(0, 1, 2),
    ],
    ids=range(28),
)
def test_each_planted_defect_is_refused(change: Callable[[Body], None]) -> None:
    """Each change of a prompt that is taken makes one that is not."""
    body = valid()
    assert [] == defects(body)
    change(body)
    assert [] != defects(body)


def test_valid_prompts_have_no_defect() -> None:
    """Whole iterations may be missing; the last calls may be unanswered yet; made histories have no defect."""
    for places in ((1, 2), (4,), (3, 4), (1, 2, 3, 4)):
        body = valid()
        drop(*places)(body)
        assert [] == defects(body)
    for seed in range(50):
        assert [] == defects(history(random.Random(seed), seed % 12))
