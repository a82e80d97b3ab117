"""Prompts that end in the midst of a turn: no note follows a call that waits for its result."""

from __future__ import annotations

import json
import random
from collections import Counter as Multiset
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer
from prompt_sidecar.prompt.items import Role
from tests.conformance.case import Case
from tests.conformance.table import CASES
from tests.engine.runs.making import OPENAI_CHAT, Engine, body, history
from tests.promises.played import Played

LIMIT = 6_000
HEADS = [
    pytest.param(case, head, id=f"{case.format}-{place}")
    for case in CASES.values()
    for place, head in enumerate(case.heads)
]
NOTED = {"openai_chat-0", "openai_responses-1", "openai_responses-3"}
"""Those whose prompts may end in a system message."""


def has_note(answer: TrimAnswer) -> bool:
    """Whether a note is in the prompt."""
    return any(piece.kind is OwnTextKind.NOTE for piece in answer.prompt.own_text)


def is_unfinished(play: Played, count: int) -> bool:
    """Whether the first messages end in what the model said, or in a part of the results of its calls."""
    read = [play.form.read(raw, "message") for raw in play.slices(play.raw(play.messages[:count]))]
    open_calls: Multiset[str] = Multiset()
    for message in read:
        open_calls.update(message.calls)
        open_calls.subtract(message.answers)
    return read[-1].role is Role.ASSISTANT or (read[-1].role is Role.TOOL and bool(+open_calls))


@pytest.mark.parametrize(("case", "head"), HEADS)
def test_every_beginning_of_a_run(case: Case, head: Mapping[str, Any], request: pytest.FixtureRequest) -> None:
    """Wherever a prompt ends: the note is there where the model answers anew, and else it waits."""
    ends = 0
    noted = set()
    for seed in range(4):
        play = Played(case, case.history(random.Random(seed), 8) | dict(head), LIMIT, "cache_first", bare=False)
        engine = play.engine()
        for count in range(1, len(play.messages) + 1):
            answer = play.trim(engine, play.raw(play.messages[:count]))
            ends += is_unfinished(play, count)
            if has_note(answer):
                noted.add(is_unfinished(play, count))
    assert ends
    assert noted == ({False} if request.node.callspec.id in NOTED else set())


def call(*ids: str, **more: Any) -> dict[str, Any]:
    """A message that calls a tool."""
    calls = [{"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str | None) -> dict[str, Any]:
    """Its result."""
    named = {} if call_id is None else {"tool_call_id": call_id}
    return {"role": "tool", **named, "content": "It is there."}


OLD_CALL = {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}}
ENDS: Mapping[str, tuple[Sequence[Any], bool]] = {
    "a call": ([call("a")], False),
    "its result": ([call("a"), result("a")], True),
    "one result of two": ([call("a", "b"), result("a")], False),
    "both": ([call("a", "b"), result("b"), result("a")], True),
    "a result that names no call": ([call("a"), result(None)], True),
    "a retired function": ([OLD_CALL], False),
    "its answer": ([OLD_CALL, {"role": "function", "name": "read", "content": "It is there."}], True),
    "the beginning of an answer": ([{"role": "assistant", "content": "It is", "prefix": True}], False),
    "a user's words": ([{"role": "user", "content": "Go on."}], True),
    "words instead of a result": ([call("a"), {"role": "user", "content": "Leave it."}], True),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_a_chat(name: str) -> None:
    """And the figures count the note only where it is."""
    end, noted = ENDS[name]
    engine = Engine(limit=LIMIT)
    messages = [*history(OPENAI_CHAT, 12), *end]
    answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages))
    got = json.loads(answer.prompt.body or b"")["messages"]
    assert noted == has_note(answer)
    assert answer.trimmed.trims
    assert got[-1 - noted] == end[-1]
    assert answer.cache.kept + answer.cache.rewritten == answer.tokens.after


def test_it_comes_with_the_result() -> None:
    """The prompt that has it goes on from the one without, and keeps all of it."""
    engine = Engine(limit=LIMIT)
    messages = [*history(OPENAI_CHAT, 12), call("a")]
    first = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages))
    then = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, [*messages, result("a")]))
    assert [False, True] == [has_note(first), has_note(then)]
    assert then.cache.kept == first.tokens.after
