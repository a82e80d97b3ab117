"""Behind the guard there are no values: not in answers, originals, searches, lists, revisions; and all come back."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.prompt.formats import FORMATS
from tests.engine.steps.test_edits import apply
from tests.guard.planting import FORMATS_WITH_HISTORIES, planted, secrets, serialised, turns
from tests.promises.engine import Engine

ENFORCE = GuardOptions(mode="enforce", restore=("*:*",))
PLAIN: dict[str, Any] = {"preset": "fit_only", "recall_unavailable": True, "policy": {"own_text_max_tokens": 0}}
"""Without text of the sidecar's own."""
formats = pytest.mark.parametrize("format", FORMATS_WITH_HISTORIES)
seeds = given(seed=st.integers(0, 2**32))
some = settings(max_examples=8, deadline=None)


def leaks(values: list[tuple[str, str]], *texts: bytes) -> list[str]:
    """The values that stand in any of the texts."""
    return [value for value, _ in values if any(value.encode() in text for text in texts)]


def everything(engine: Engine, answer: TrimAnswer) -> list[bytes]:
    """All that the sidecar keeps or returns of a prompt."""
    texts = [
        answer.prompt.body or b"",
        answer.prompt.revision,
        repr(answer.prompt.own_text).encode(),
        repr(answer.trimmed.stash_entries).encode(),
    ]
    texts += [edit.value for edit in answer.prompt.edits]
    texts += [repr(answer.guard.findings).encode(), repr(answer.news.repeated).encode()]
    run = engine.runs.table.known("promises", engine.run_id)
    assert run is not None
    ids = [entry.stash_id for record in run.memory.ledger.records for entry in record.entries]
    texts += list(engine.runs.stash.peek(run.stash_key, ids).values())
    texts.append(repr([record.names for record in run.memory.ledger.records]).encode())
    texts.append(repr(run.memory.recorder.calls).encode())
    found = engine.search("postgres app token key export command", max_snippets=50)
    texts.append(repr(found.snippets).encode())
    return texts


@formats
@seeds
@some
def test_no_value_is_behind_the_guard(format: str, seed: int) -> None:
    """As a history grows and is cut: none in any answer, original, snippet, list or revision."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 6, values)
    assume(leaks(values, serialised(body)))
    engine = Engine(limit=chance.choice([3_000, 100_000]), guard=ENFORCE)
    for step in turns(body, FORMATS[format].messages_field):
        answer = engine.trim(format, serialised(step))
        assert [] == leaks(values, *everything(engine, answer))


@formats
@seeds
@some
def test_every_value_comes_back(format: str, seed: int) -> None:
    """Where nothing is trimmed, giving all values back makes the prompt that was sent."""
    chance = random.Random(seed)
    values = secrets(chance)
    sent = serialised(planted(format, chance, 5, values))
    engine = Engine(limit=1_000_000, guard=ENFORCE)
    answer = engine.trim(format, sent, **PLAIN)
    assert answer.prompt.body is not None
    restored = engine.restore("any", answer.prompt.body)
    assert json.loads(sent) == json.loads(restored.arguments)
    assert (0, 0) == (restored.not_allowed, restored.unknown)


@formats
@seeds
@some
def test_raw_masked_and_mixed_prompts_align(format: str, seed: int) -> None:
    """Sent as it was, as it came back, or in part, a history has the same answer and the same revision."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 5, values)
    member = FORMATS[format].messages_field
    engine = Engine(limit=1_000_000, guard=ENFORCE)
    first = engine.trim(format, serialised(body), **PLAIN)
    masked = json.loads(first.prompt.body or b"")
    mixed = {**body, member: [chance.choice(pair) for pair in zip(body[member], masked[member], strict=True)]}
    for again in (masked, mixed, body, masked):
        answer = engine.trim(format, serialised(again), **PLAIN)
        assert masked[member] == json.loads(answer.prompt.body or b"")[member]
        assert first.prompt.revision == answer.prompt.revision
        assert [] == [finding for finding in answer.guard.findings if finding.message_index >= 0]


@formats
@seeds
@some
def test_a_fresh_process_makes_the_same_prompt(format: str, seed: int) -> None:
    """One that saw the history grow and one that sees it at once mask and trim alike."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 6, values)
    limit = chance.choice([3_000, 100_000])
    grown = Engine(limit=limit, guard=ENFORCE)
    for step in turns(body, FORMATS[format].messages_field):
        answer = grown.trim(format, serialised(step), preset="fit_only")
    again = grown.trim(format, serialised(body), preset="fit_only")
    fresh = Engine(limit=limit, guard=ENFORCE).trim(
        format, serialised(body), preset="fit_only", revision=answer.prompt.revision
    )
    assert again.prompt.body == fresh.prompt.body


@formats
@seeds
@some
def test_edits_mask_what_was_sent(format: str, seed: int) -> None:
    """Edits, applied to the agent's own prompt, are the whole answer, and hold no value."""
    chance = random.Random(seed)
    values = secrets(chance)
    body = planted(format, chance, 6, values)
    limit = chance.choice([3_000, 100_000])
    whole, edited = Engine(limit=limit, guard=ENFORCE), Engine(limit=limit, guard=ENFORCE)
    for step in turns(body, FORMATS[format].messages_field):
        sent = serialised(step)
        full, edits = whole.trim(format, sent), edited.trim(format, sent, edits=True)
        assert json.loads(full.prompt.body or b"") == apply(sent, edits.prompt.edits)
        assert [] == leaks(values, *(edit.value for edit in edits.prompt.edits))


@formats
@seeds
@some
def test_only_looking_changes_nothing(format: str, seed: int) -> None:
    """Under audit the answer is the same as without rules, but for what it reports."""
    chance = random.Random(seed)
    body = serialised(planted(format, chance, 5, secrets(chance)))
    off = GuardOptions(actions=("secrets=off", "personal=off", "lookalikes=off"))
    looked, plain = Engine(limit=3_000).trim(format, body), Engine(limit=3_000, guard=off).trim(format, body)
    assert plain.prompt.body == looked.prompt.body
    assert plain.prompt.revision == looked.prompt.revision
    assert () == tuple(plain.guard.findings)
    assert all(finding.action == "observed" for finding in looked.guard.findings)
