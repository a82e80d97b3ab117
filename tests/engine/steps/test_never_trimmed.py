"""Results of tools that the policy never trims."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.presets import PRESETS
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, Engine, body, history


def _results(raw: bytes | None) -> str:
    return json.dumps(json.loads(raw or b"")["messages"])


def _marked(format: str, iterations: int) -> list[Any]:
    """A history in which the second call is of another tool, `plan`."""
    text = json.dumps(history(format, iterations))
    first = text.index('"read"', text.index('"read"') + 1)
    return list(json.loads(text[:first] + '"plan"' + text[first + len('"read"') :]))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_result_stays_whole(format: str, preset: str) -> None:
    """It is neither clipped nor elided, while others of its age are, and all prompts of the run have it whole."""
    engine = Engine(limit=LIMIT, preset=preset, policy={"never_trim_tools": ["plan"]})
    whole = "src/module_1.py:44: warning"
    trims = []
    for number in range(2, 10):
        answer = engine.trim(format, body(format, _marked(format, number)))
        trims = [trim for trim in answer.trimmed.trims if trim.kind is ItemKind.RESULT]
        assert whole in _results(answer.prompt.body)
    place = 3 if format != ANTHROPIC_MESSAGES else 4
    assert preset == "cap_only" or trims
    assert place not in {trim.message_index for trim in trims}


@pytest.mark.parametrize("format", FORMATS)
def test_the_cap_leaves_it_alone_too(format: str) -> None:
    """However large it is; with another policy it is capped."""
    raw = body(format, _marked(format, 2))
    policy = {"cap_text_bytes": 1_024, "never_trim_tools": ["plan"]}
    kept = Engine(limit=100_000, policy=policy).trim(format, raw)
    capped = Engine(limit=100_000, policy={"cap_text_bytes": 1_024}).trim(format, raw)
    assert 1 == len(kept.trimmed.trims)
    assert 2 == len(capped.trimmed.trims)
    assert "src/module_1.py:20: warning" in _results(kept.prompt.body)
