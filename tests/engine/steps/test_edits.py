"""Edits, applied to what was sent, are the whole answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompt_sidecar.client.continuing import by_message, merged
from prompt_sidecar.facts.trim_calls import Edit, EditOperation, OwnTextKind, TrimAnswer
from prompt_sidecar.prompt.body import Split
from tests.engine.runs.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, Engine, body, grown, history
from tests.oracle.runs import Run, body_of, turns
from tests.oracle.strategies import budgets, histories, policies
from tests.promises.resend import mixed

formats = pytest.mark.parametrize("format", FORMATS)


def apply(sent: Any, edits: Sequence[Edit]) -> Any:
    """Apply edits in order, each at its JSON pointer, as RFC 6902 defines add, remove and replace."""
    value = json.loads(sent)
    for edit in edits:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in edit.pointer.split("/")[1:]]
        parent = value
        for step in path:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        if isinstance(parent, list):
            place = int(last)
            assert 0 <= place < len(parent) + (edit.operation is EditOperation.INSERT)
            if edit.operation is EditOperation.INSERT:
                parent.insert(place, json.loads(edit.value))
            elif edit.operation is EditOperation.REMOVE:
                del parent[place]
            else:
                parent[place] = json.loads(edit.value)
        elif edit.operation is EditOperation.REMOVE:
            del parent[last]
        else:
            assert (edit.operation is EditOperation.REPLACE) == (last in parent)
            parent[last] = json.loads(edit.value)
    return value


def agree(full: TrimAnswer, edits: TrimAnswer, sent: bytes) -> None:
    """Check that both answers say the same."""
    assert full.prompt.body is not None
    assert None is edits.prompt.body
    assert json.loads(full.prompt.body) == apply(sent, edits.prompt.edits)
    assert (full.prompt.revision, full.trimmed.trims, full.prompt.own_text) == (
        edits.prompt.revision,
        edits.trimmed.trims,
        edits.prompt.own_text,
    )


@formats
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), policy=policies(), limit=budgets())
def test_any_history(format: str, data: st.DataObject, policy: dict[str, Any], limit: int) -> None:
    """Untrimmed, trimmed or mixed, at every turn of a random run."""
    run: Run = data.draw(histories(format, most_iterations=6))
    one, other = (Engine(limit=limit, policy=policy) for _ in range(2))
    written = run.slices()
    before: TrimAnswer | None = None
    for length in turns(run.messages):
        sent = body_of(format, written[:length], system=run.system)
        full = one.trim(format, sent)
        agree(full, other.trim(format, sent, edits=True), sent)
        before = full
        assert before.prompt.body is not None
        agree(
            one.trim(format, before.prompt.body), other.trim(format, before.prompt.body, edits=True), before.prompt.body
        )
        again = body_of(format, mixed(run, written[:length], full, seed=length), system=run.system)
        agree(one.trim(format, again), other.trim(format, again, edits=True), again)


SYSTEMS = ["You are careful.", "", [], [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], None]


@pytest.mark.parametrize("system", SYSTEMS)
def test_system_of_anthropic(system: Any) -> None:
    """The system prompt may be a string, blocks or absent: our text is added, what is there stays."""
    one, other = (Engine(limit=50_000) for _ in range(2))
    sent = body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, 3), system=system)
    full = one.trim(ANTHROPIC_MESSAGES, sent)
    assert OwnTextKind.DIRECTIVES in {own.kind for own in full.prompt.own_text}
    agree(full, other.trim(ANTHROPIC_MESSAGES, sent, edits=True), sent)


@pytest.mark.parametrize("system", ["null", '"S"', "[]"])
def test_system_after_the_messages(system: str) -> None:
    """A system prompt may stand after the messages, or be null."""
    one, other = (Engine(limit=50_000) for _ in range(2))
    sent = body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, 3), system=None)[:-1] + f',"system":{system}}}'.encode()
    agree(one.trim(ANTHROPIC_MESSAGES, sent), other.trim(ANTHROPIC_MESSAGES, sent, edits=True), sent)


@formats
def test_bare_array(format: str) -> None:
    """Pointers into a bare array begin at its elements; where our text has no place, it is handed over."""
    (one, _), (other, _) = grown(format), grown(format)
    sent = json.dumps(history(format, 13)).encode()
    full = one.trim(format, sent)
    agree(full, other.trim(format, sent, edits=True), sent)
    assert full.prompt.own_text


@formats
def test_values_are_the_answers_bytes(format: str) -> None:
    """A replaced message has the bytes that the whole answer has."""
    one, other = (Engine(limit=LIMIT) for _ in range(2))
    sent = body(format, history(format, 14))
    full = one.trim(format, sent)
    for edit in other.trim(format, sent, edits=True).prompt.edits:
        if edit.operation is EditOperation.REPLACE:
            assert edit.value in (full.prompt.body or b"")


def test_nothing_to_edit() -> None:
    """Where nothing is trimmed and no own text written, there is no edit."""
    engine = Engine(limit=50_000)
    sent = body(OPENAI_CHAT, history(OPENAI_CHAT, 2))
    assert [] == list(engine.trim(OPENAI_CHAT, sent, edits=True, recall_unavailable=True).prompt.edits)


def test_old_messages_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a base and edits, a call cuts as many messages out of the body after ten iterations as after forty."""
    cut_out: list[int] = []
    whole = Split.message

    def counted(split: Split, index: int) -> bytes:
        cut_out.append(index)
        return whole(split, index)

    monkeypatch.setattr(Split, "message", counted)
    engine, messages = Engine(limit=50_000), history(OPENAI_CHAT, 40)
    revision, sent = b"", 0
    found: dict[int, int] = {}
    for iterations in range(1, 41):
        upto = len(history(OPENAI_CHAT, iterations))
        cut_out.clear()
        answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages[sent:upto]), edits=True, base_revision=revision)
        assert [] == list(answer.trimmed.trims)
        revision, sent, found[iterations] = answer.prompt.revision, upto, len(cut_out)
    assert found[10] == found[40]


@formats
def test_edits_that_have_not_changed_are_left_out(format: str) -> None:
    """With those that the agent has kept by message they are all edits; most answers have only those of what is new."""
    plain, engine, messages = Engine(limit=LIMIT), Engine(limit=LIMIT), history(format, 60)
    revision, sent, counts = b"", 0, []
    kept: dict[str, tuple[tuple[str, str, bytes], ...]] = {}
    for iterations in range(1, 61):
        upto = len(history(format, iterations))
        expected = plain.trim(format, body(format, messages[:upto]), edits=True)
        answer = engine.trim(
            format, body(format, messages[sent:upto]), edits=True, base_revision=revision, changed_edits_only=True
        )
        assert answer.prompt.edits_since_base == (sent > 0)
        new = [(str(edit.operation), edit.pointer, edit.value) for edit in answer.prompt.edits]
        edits = merged(kept, new, "messages")
        kept = by_message(edits, "messages")[0]
        assert [(str(edit.operation), edit.pointer, edit.value) for edit in expected.prompt.edits] == edits
        revision, sent = answer.prompt.revision, upto
        counts.append((len(new), len(edits)))
    assert sum(few for few, _ in counts) < sum(many for _, many in counts) // 4
    older = engine.trim(format, body(format, messages[:sent]), edits=True, revision=revision, changed_edits_only=True)
    assert not older.prompt.edits_since_base
