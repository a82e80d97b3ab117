"""Models that cache a prompt at breakpoints alone: no note stands at the end, where one may lie."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import msgspec
import pytest

from prompt_sidecar.trim.revision import seal, unseal
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, Engine, body, history
from tests.promises.engine import KEY

NEWER, OLDER = "gpt-5.6-sol", "gpt-5.4"


def prompts(engine: Engine, model: str, first: int = 1, last: int = 20, **fields: Any) -> list[Any]:
    """The messages that are sent on as a history grows, and the last revision."""
    made = []
    for number in range(first, last + 1):
        answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, number)), model=model, **fields)
        made.append((json.loads(answer.prompt.body or b"")["messages"], answer))
        fields.pop("revision", None)
    return made


def notes(made: list[Any]) -> int:
    """How many prompts end in text of the sidecar's."""
    return sum(messages[-1]["role"] == "system" for messages, _ in made)


@pytest.mark.parametrize("model", [NEWER, "openai/gpt-6.2-astra"])
def test_a_prompt_ends_in_the_agents_text(model: str) -> None:
    """So each one begins with the one before it, but at batch points; what a note says stands in the registry."""
    made = prompts(Engine(limit=LIMIT, policy=ROOM), model)
    assert not notes(made)
    broken = 0
    for (before, _), (after, answer) in itertools.pairwise(made):
        kept = before == after[: len(before)]
        assert kept or answer.cache.batch_point
        broken += not kept
    assert 0 < broken < len(made) / 2
    assert any("search" in message["content"] for message in made[-1][0] if message["role"] == "system")


@pytest.mark.parametrize("model", [OLDER, "gpt-4o", "gpt-35-turbo", "gpt-oss-120b", "gpt-5-2025-08-07"])
def test_a_note_stands_at_the_end_for_others(model: str) -> None:
    """There everything ahead of it stays cached."""
    assert notes(prompts(Engine(limit=LIMIT, policy=ROOM), model))


@pytest.mark.parametrize(("first", "then"), [(NEWER, OLDER), (OLDER, NEWER)])
def test_the_first_call_decides_for_the_run(first: str, then: str) -> None:
    """Another model later changes nothing of it, nor does another process that goes on from the revision."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    begun = prompts(engine, first, last=14)
    went_on = prompts(engine, then, first=15)
    assert bool(notes(begun)) == bool(notes(went_on)) == (first == OLDER)
    revision = begun[-1][1].prompt.revision
    other = prompts(Engine(limit=LIMIT, policy=ROOM), then, first=15, revision=revision)
    assert went_on[0][0] == other[0][0]


def test_a_run_of_an_earlier_version_keeps_its_notes() -> None:
    """Its prompts go on as they were, but for how many dropped iterations a label counts, which is as it was then."""
    made = prompts(Engine(limit=LIMIT, policy=ROOM), OLDER, last=14)
    opened = unseal(KEY, made[-1][1].prompt.revision)
    assert opened is not None
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(opened))
    kept = msgspec.convert(fields[:-1], type(opened))
    assert not kept.note_waits
    earlier = seal(KEY, msgspec.structs.replace(kept, version=6))
    again = prompts(Engine(limit=LIMIT, policy=ROOM), NEWER, first=14, last=16, revision=earlier)
    for message in made[-1][0]:
        message["content"] = re.sub(r"\d\+ (?=other iterations)", "3 ", message["content"])
    assert made[-1][0] == again[0][0]
    assert notes(again)
