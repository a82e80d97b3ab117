"""Originals: stored before anything is returned without them, or the item stays whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import NoFit
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.entries import Action
from tests.engine.runs.making import (
    ANTHROPIC_MESSAGES,
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    ROOM,
    Engine,
    body,
    grown,
    history,
    ids,
    send,
    slices,
)

formats = pytest.mark.parametrize("format", FORMATS)
SMALL = Limits(run_stash_bytes=1_000, original_bytes=1_000)


def restorable(engine: Engine, trims: list[str]) -> list[str]:
    """Ids that fetch nothing."""
    return [stash_id for stash_id in trims if engine.retrieve(stash_id).outcome is Outcome.NOT_FOUND]


@formats
def test_what_cannot_be_stored_is_not_trimmed(format: str) -> None:
    """A result larger than the run's whole budget stays whole; the answer counts it and says why it does not fit."""
    engine = Engine(limit=LIMIT, policy=ROOM, limits=SMALL)
    messages = history(format, 12)
    answer = engine.trim(format, body(format, messages))
    assert (False, NoFit.NOT_STASHABLE) == (answer.fits, answer.no_fit)
    assert 12 == answer.trimmed.not_stashable
    returned = [json.dumps(message) for message in slices(answer.prompt.body)]
    assert 12 == sum(
        json.dumps(message) in returned
        for message in messages
        if "module_" in json.dumps(message) and "warning" in json.dumps(message)
    )
    assert [] == restorable(engine, ids(answer))


def thinking(size: int) -> list[Any]:
    """A history whose assistant messages hold a block that nobody knows."""
    messages = history(ANTHROPIC_MESSAGES, 30)
    for message in messages:
        if message["role"] == "assistant":
            message["content"].insert(0, {"type": "x_block", "data": "x y " * size})
    return messages


def test_a_message_that_cannot_be_stored_is_not_dropped() -> None:
    """A message is stored whole when it is dropped; if it is too large for that, it stays."""
    engine = Engine(limit=LIMIT, policy=ROOM, limits=Limits(run_stash_bytes=5_000, original_bytes=5_000))
    answer = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, thinking(1_500)))
    assert [] == restorable(engine, ids(answer))
    assert [] == [trim for trim in answer.trimmed.trims if trim.action is Action.DROPPED]


def test_an_input_whose_raw_json_cannot_be_stored_is_not_clipped() -> None:
    """The original of an input is its raw JSON, which escapes can make six times its text: that is what must fit."""
    messages = history(ANTHROPIC_MESSAGES, 12)
    for message in messages:
        if message["role"] == "assistant":
            message["content"][1]["input"] = {"text": "й" * 400}
    raw = json.dumps({"messages": messages}).encode()
    engine = Engine(limit=LIMIT, policy=ROOM, limits=Limits(run_stash_bytes=2_000, original_bytes=2_000))
    answer = engine.trim(ANTHROPIC_MESSAGES, raw)
    assert [] == restorable(engine, ids(answer))


@formats
def test_originals_are_what_was_sent(format: str) -> None:
    """Whatever is trimmed comes back byte for byte."""
    engine, answer = grown(format, 20)
    results = {
        message["content"] if format == OPENAI_CHAT else message["content"][0]["content"]
        for message in history(format, 20)
        if "warning" in json.dumps(message)
    }
    fetched = {
        (engine.original(trim.stash_id) or b"").decode() for trim in answer.trimmed.trims if trim.kind.value == "result"
    }
    assert fetched
    assert fetched <= results


@formats
def test_large_messages_are_trimmed_as_small_ones(format: str) -> None:
    """Messages of over a megabyte, the last of which is not decoded again to be edited; their originals come back."""
    messages = history(format, 3)
    texts = []
    for number, message in enumerate(messages):
        if "warning" in json.dumps(message):
            holder = message if format == OPENAI_CHAT else message["content"][0]
            holder["content"] = f"begin {number} " + "🙂 é word\n" * 90_000 + f" end {number}"
            texts.append(holder["content"])
    engine, again = Engine(limit=LIMIT, policy=ROOM), Engine(limit=LIMIT, policy=ROOM)
    answer = engine.trim(format, body(format, messages))
    again.trim(format, body(format, messages[:-1]))
    assert answer.prompt.body == again.trim(format, body(format, messages)).prompt.body
    fetched = [
        (engine.original(trim.stash_id) or b"").decode() for trim in answer.trimmed.trims if trim.kind.value == "result"
    ]
    assert set(texts) == set(fetched)


@formats
def test_expired_and_received_again(format: str) -> None:
    """What has expired is stored again when the untrimmed history comes again, and no decision changes."""
    engine, answer = grown(format)
    engine.clock.now += 3_601
    assert {Outcome.EXPIRED} == {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}
    again = send(engine, format, 12)
    assert (answer.prompt.body, answer.trimmed.trims) == (again.prompt.body, again.trimmed.trims)
    assert {Outcome.HIT} == {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}


@formats
def test_expired_and_not_received(format: str) -> None:
    """An agent that sends the trimmed prompt brings no originals: what expired stays so, and decisions stay too."""
    engine, answer = grown(format)
    engine.clock.now += 3_601
    again = engine.trim(format, answer.prompt.body or b"")
    assert answer.trimmed.trims == again.trimmed.trims
    assert {Outcome.EXPIRED} == {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}


@formats
def test_renewed_by_being_received(format: str) -> None:
    """Receiving the untrimmed history renews every original; retrieving renews the one."""
    engine, answer = grown(format)
    for _ in range(3):
        engine.clock.now += 3_000
        send(engine, format, 12)
    assert {Outcome.HIT} == {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}
    engine.clock.now += 3_000
    engine.retrieve(ids(answer)[0])
    engine.clock.now += 3_000
    outcomes = [engine.retrieve(stash_id).outcome for stash_id in ids(answer)]
    assert (Outcome.HIT, {Outcome.EXPIRED}) == (outcomes[0], set(outcomes[1:]))


@formats
def test_the_trimmed_prompt_renews_nothing_that_it_lacks(format: str) -> None:
    """An agent that sends trimmed prompts does not bring the originals, so they age."""
    engine, answer = grown(format)
    for _ in range(2):
        engine.clock.now += 3_000
        engine.trim(format, answer.prompt.body or b"")
    assert Outcome.EXPIRED in {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}


@formats
def test_evicted_originals_differ_from_unknown_ones(format: str) -> None:
    """Originals beyond the run's budget are evicted, oldest first, and told from those that never were."""
    engine, answer = grown(format, 20, limits=Limits(run_stash_bytes=12_000))
    outcomes = [engine.retrieve(stash_id).outcome for stash_id in ids(answer)]
    assert {Outcome.HIT, Outcome.EVICTED} == set(outcomes)
    figures = engine.runs.figures("promises", "run-1").stash
    assert figures.held_bytes <= 12_000
    assert outcomes.count(Outcome.EVICTED) <= figures.evicted
    assert Outcome.NOT_FOUND == engine.retrieve("aaaaaaaaaa").outcome
    again = send(engine, format, 20)
    assert answer.trimmed.trims == again.trimmed.trims


@formats
def test_a_smaller_budget_trims_the_same(format: str) -> None:
    """limits.original_bytes says what may be taken: pods with less memory decide the same, and evict more."""
    engine, answer = grown(format, 20)
    poor, same = grown(format, 20, limits=Limits(stash_bytes=500, run_stash_bytes=500, memory_bytes=2_000))

    assert answer.trimmed.trims == same.trimmed.trims
    assert {Outcome.HIT} == {engine.retrieve(stash_id).outcome for stash_id in ids(answer)}
    assert Outcome.EVICTED in {poor.retrieve(stash_id).outcome for stash_id in ids(same)}
    assert poor.runs.figures("promises", "run-1").stash.held_bytes <= 500


@formats
def test_dead_entries_leave_the_registry_at_a_batch_point(format: str) -> None:
    """The registry names only what can be fetched when it was written."""
    engine, _ = grown(format, 8)
    for number in range(9, 30):
        engine.clock.now += 200
        answer = send(engine, format, number)
        if answer.cache.batch_point:
            assert {Outcome.HIT} == {engine.retrieve(entry.stash_id).outcome for entry in answer.trimmed.stash_entries}
