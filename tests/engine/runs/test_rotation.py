"""A new key: what was made with its predecessor is accepted, and runs go on as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, body, grown, history, ids, send
from tests.engine.runs.test_recalling import with_recall
from tests.guard.test_masks import masked
from tests.guard.test_refusing import ENFORCE, chat
from tests.guard.test_refusing import KEY as SECRET
from tests.promises.engine import KEY, Engine

formats = pytest.mark.parametrize("format", FORMATS)
NEW = b"the key that follows, as long as the one before"
OTHER = b"a key that never was in force, as long as they are"


def rotated(**fields: Any) -> Engine:
    """A process that has the new key, and knows the one before."""
    return Engine(limit=LIMIT, policy=ROOM, key=NEW, previous_keys=[OTHER, KEY], **fields)


def originals(engine: Engine, answer: TrimAnswer) -> dict[str, bytes | None]:
    """What each id of an answer gives."""
    return {stash_id: engine.original(stash_id) for stash_id in ids(answer) if stash_id}


@formats
def test_a_run_with_a_revision_keeps_its_bytes_and_ids(format: str) -> None:
    """As a process with the old key would have gone on, for as many prompts as the agent sends."""
    old, before = grown(format, 12)
    after = rotated()
    revision = before.prompt.revision
    for iterations in range(12, 20):
        expected = send(old, format, iterations, revision=before.prompt.revision)
        found = send(after, format, iterations, revision=revision)
        assert expected.prompt.body == found.prompt.body
        assert ids(expected) == ids(found)
        revision = found.prompt.revision
    assert originals(old, expected) == originals(after, expected)


@formats
def test_a_revision_of_either_key_is_accepted(format: str) -> None:
    """The next process gets one that the process with the new key has signed, for a run that began before."""
    _, before = grown(format, 12)
    first = send(rotated(), format, 12, revision=before.prompt.revision)
    assert RevisionUse.APPLIED is first.revision_use
    second = send(rotated(), format, 13, revision=first.prompt.revision)
    assert RevisionUse.APPLIED is second.revision_use
    alone = send(Engine(limit=LIMIT, policy=ROOM, key=NEW), format, 13, revision=first.prompt.revision)
    assert RevisionUse.MISMATCHED is alone.revision_use


@formats
def test_a_new_run_is_the_new_key_s(format: str) -> None:
    """Nothing new is made with the old key, so that it can be forgotten when the runs before are over."""
    answer = send(rotated(), format, 12)
    assert ids(send(Engine(limit=LIMIT, policy=ROOM, key=NEW), format, 12)) == ids(answer)


@formats
def test_ids_of_the_old_key_are_answered_without_a_revision(format: str) -> None:
    """The agent sends its history alone; its model still asks for what the prompt before had named."""
    old, before = grown(format, 12)
    after = rotated()
    answer = send(after, format, 12)
    assert not set(ids(before)) & set(ids(answer)) - {""}
    assert originals(old, before) == originals(after, before)
    assert Outcome.NOT_FOUND is after.retrieve("aaaaaaaaaa").outcome
    elsewhere = rotated(run_id="another")
    send(elsewhere, format, 12)
    assert Outcome.NOT_FOUND is elsewhere.retrieve(ids(before)[0]).outcome


@formats
def test_without_the_predecessor_nothing_of_it_is_accepted(format: str) -> None:
    """As soon as it is removed from the settings."""
    _, before = grown(format, 12)
    alone = Engine(limit=LIMIT, policy=ROOM, key=NEW, previous_keys=[OTHER])
    assert RevisionUse.MISMATCHED is send(alone, format, 12, revision=before.prompt.revision).revision_use
    assert Outcome.NOT_FOUND is alone.retrieve(ids(before)[0]).outcome


@formats
def test_answers_of_tools_are_recognised(format: str) -> None:
    """What was recalled before is not recorded as new text after, and what only looks alike is."""
    _, messages, _, _ = with_recall(format)
    known, unknown = rotated(), Engine(limit=LIMIT, policy=ROOM, key=NEW)
    for engine in (known, unknown):
        engine.trim(format, body(format, messages))
    assert known.figures().history.items + 1 == unknown.figures().history.items


def test_masks_are_given_back() -> None:
    """A call that the model has written before the rotation is executed after it."""
    old = masked(Engine(limit=LIMIT, guard=ENFORCE))
    after = rotated(guard=ENFORCE)
    new = masked(after)
    assert old != new
    for mask in (old, new):
        done = after.restore("deploy", json.dumps({"token": mask}).encode())
        assert {"token": SECRET} == json.loads(done.arguments)
    written = chat(f"use {SECRET}", f"the model wrote {old}", f"a page wrote {old[:-5]}aaaa{old[-1]}")
    findings = after.trim(OPENAI_CHAT, written).guard.findings
    assert [2] == [finding.message_index for finding in findings if finding.rule == "forged_mask"]


def test_a_process_without_predecessors_is_as_before() -> None:
    """A key in both places does no harm."""
    both = Engine(limit=LIMIT, policy=ROOM, previous_keys=[KEY])
    plain = Engine(limit=LIMIT, policy=ROOM)
    raw = body(OPENAI_CHAT, history(OPENAI_CHAT, 12))
    assert plain.trim(OPENAI_CHAT, raw).prompt.body == both.trim(OPENAI_CHAT, raw).prompt.body
