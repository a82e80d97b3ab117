"""Formats with no place for our text inside the history: what stands before it changes only where that costs little."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import OwnTextKind, TrimAnswer
from tests.engine.runs.making import OPENAI_CHAT, Engine, body, history, slices

ANTHROPIC = "anthropic_messages"
LIMIT = 16_000
ITERATIONS = 70
POLICY = {"registry_share": 0.02}


def run(**policy: Any) -> tuple[Engine, list[TrimAnswer]]:
    """A run of an agent that sends its own history."""
    engine = Engine(limit=LIMIT, policy=POLICY | policy)
    return engine, [engine.trim(ANTHROPIC, body(ANTHROPIC, history(ANTHROPIC, number))) for number in range(ITERATIONS)]


def registry(answer: TrimAnswer) -> str:
    """The registry in an answer."""
    return "".join(piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.REGISTRY)


def batches(answers: list[TrimAnswer]) -> list[TrimAnswer]:
    """The answers at batch points."""
    return [answer for answer in answers if answer.cache.batch_point]


def test_the_registry_stays_while_the_oldest_do() -> None:
    """From the first batch on it is the same, and later batches keep the prefix up to the results that stay."""
    _, answers = run()
    first, *later = batches(answers)
    assert len(later) > 1
    assert registry(first)
    assert {registry(first)} == {registry(answer) for answer in later}
    assert all(answer.cache.kept > 0.08 * LIMIT for answer in later)
    assert 1 == len({tuple(answer.prompt.own_text) for answer in answers[answers.index(first) :]})


def test_it_is_written_anew_where_nothing_stays() -> None:
    """With no oldest results and no arguments kept each batch changes the beginning, and the registry with it."""
    _, answers = run(fit_keep_oldest=0.0, fit_keep_light=0.0, age_arguments="empty")
    registries = [registry(answer) for answer in batches(answers)]
    assert len(registries) > 2
    assert len(set(registries)) == len(registries)


def test_its_lines_are_true() -> None:
    """Every id in it can be retrieved; the line that counts the rest counts what was trimmed by then."""
    engine, answers = run()
    first, *_ = batches(answers)
    ids = [line.split()[0].removeprefix("id=") for line in registry(first).splitlines() if line.startswith("id=")]
    assert ids
    assert all(engine.original(stash_id) for stash_id in ids)
    (rest,) = [line for line in registry(first).splitlines() if line.startswith("and ")]
    assert len(first.trimmed.trims) == len(ids) + int(rest.split()[1])


@pytest.mark.parametrize("upto", range(20, ITERATIONS, 12))
def test_another_process_writes_the_same(upto: int) -> None:
    """One that is sent the history, and one that is handed the revision as well, come to the same prompt."""
    _, answers = run()
    sent = body(ANTHROPIC, history(ANTHROPIC, upto))
    for fields in ({}, {"revision": answers[upto].prompt.revision}):
        fresh = Engine(limit=LIMIT, policy=POLICY).trim(ANTHROPIC, sent, **fields)
        assert answers[upto].prompt.body == fresh.prompt.body
        engine = Engine(limit=LIMIT, policy=POLICY)
        engine.trim(ANTHROPIC, sent, **fields)
        longer = engine.trim(ANTHROPIC, body(ANTHROPIC, history(ANTHROPIC, ITERATIONS - 1)))
        assert answers[-1].prompt.body == longer.prompt.body


def test_a_trimmed_history_sent_back() -> None:
    """An agent that goes on from what it got gets the same prompts, whatever count the label had then."""
    _, answers = run()
    adopter = Engine(limit=LIMIT, policy=POLICY)
    kept: list[Any] = []
    for number, answer in enumerate(answers):
        new = history(ANTHROPIC, number)[len(history(ANTHROPIC, number - 1)) if number else 0 :]
        got = adopter.trim(ANTHROPIC, body(ANTHROPIC, [*kept, *new]))
        assert json.loads(answer.prompt.body or b"") == json.loads(got.prompt.body or b""), number
        kept = json.loads(got.prompt.body or b"")["messages"]
    assert b" other iterations dropped]" in (answers[-1].prompt.body or b"")


def test_what_went_before_there_was_a_carrier_is_listed_once() -> None:
    """Iterations without a label go without one; what counts them stays as it is while others are dropped."""
    engine = Engine(limit=LIMIT, policy=POLICY | {"fit_keep_oldest": 0.0})
    registries: list[str] = []
    for number in range(ITERATIONS):
        messages = history(ANTHROPIC, number)
        if number:
            messages[1]["content"][0]["text"] = messages[2]["content"][0]["content"] = "ok"  # too short to be clipped
        answer = engine.trim(ANTHROPIC, body(ANTHROPIC, messages))
        registries += [piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.DROPPED]
    assert {"[1+ earlier iterations dropped]"} == set(registries)
    assert b" other iterations dropped]" in (answer.prompt.body or b"")


def test_the_kept_prefix_is_not_reported_too_long() -> None:
    """Where no iteration has a label a message of ours counts, and moves the prefix each time it changes."""
    engine = Engine(limit=6_000, policy=POLICY | {"fit_keep_oldest": 0.0})
    before: list[Any] = []
    counted: set[str] = set()
    for number in range(40):
        messages = history(OPENAI_CHAT, number)
        for message in messages[2:]:
            if message["role"] == "tool":
                message["content"] = "ok"  # too short to be clipped, as what the model says is
            else:
                message["content"] = "I read."
                message["tool_calls"][0]["function"]["arguments"] = json.dumps({"path": ["src/some/module.py"] * 140})
        pinned = frozenset({4}) if number > 2 else frozenset()  # it stays after the message that counts
        answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages), pinned=pinned)
        now = slices(answer.prompt.body)
        same = next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(before))
        assert answer.cache.first_changed <= same
        counted |= {piece.text for piece in answer.prompt.own_text if piece.kind is OwnTextKind.DROPPED}
        before = now
    assert {"[1+ earlier iterations dropped]", "[10+ earlier iterations dropped]"} == counted
