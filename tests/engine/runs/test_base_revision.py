"""Deltas: what follows a known revision stands for the whole prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prompt_sidecar.errors import RevisionUnknown
from prompt_sidecar.facts.trim_calls import TrimAnswer
from tests.engine.runs.making import FORMATS, LIMIT, Engine, body, facts, grown, history, send

formats = pytest.mark.parametrize("format", FORMATS)


def spaced_alike(answer: TrimAnswer) -> TrimAnswer:
    """An answer whose body has no space after commas between messages."""
    alike = facts(answer)
    body = (answer.prompt.body or b"").replace(b"}, {", b"},{")
    return replace(alike, prompt=replace(alike.prompt, body=body))


@formats
@pytest.mark.parametrize("again", [1, 2])
def test_delta_is_the_whole(format: str, again: int) -> None:
    """Body, decisions, figures and revision are those of the whole prompt, call after call."""
    whole, delta = (grown(format) for _ in range(2))
    engine, answer = delta
    sent = len(history(format, 12))
    for step in range(again):
        messages = history(format, 13 + step)
        expected = whole[0].trim(format, body(format, messages))
        answer = engine.trim(format, body(format, messages[sent:]), base_revision=answer.prompt.revision)
        assert spaced_alike(expected) == spaced_alike(answer)
        sent = len(messages)


@formats
def test_delta_after_an_older_revision(format: str) -> None:
    """An older revision stands for the history that it was made for: what followed is gone."""
    engine = Engine(limit=LIMIT)
    plain = Engine(limit=LIMIT)
    old = send(engine, format, 5)
    for number in (5, 6, 7):
        send(engine, format, number)
        send(plain, format, number)
    other = [*history(format, 5), {"role": "user", "content": "Stop that."}]
    expected = plain.trim(format, body(format, other))
    answer = engine.trim(format, body(format, other[-1:]), base_revision=old.prompt.revision)
    assert spaced_alike(expected) == spaced_alike(answer)


@formats
def test_delta_as_a_bare_array(format: str) -> None:
    """A delta may be a bare array where the whole prompt was an object: it is then a bare array that is answered."""
    engine, answer = grown(format)
    messages = history(format, 13)
    bare = b"[" + body(format, messages[len(history(format, 12)) :]).partition(b'"messages": [')[2][:-1]
    assert (engine.trim(format, bare, base_revision=answer.prompt.revision).prompt.body or b"").startswith(b"[")


@formats
def test_a_foreign_base_revision_is_unknown(format: str) -> None:
    """Of another run, another process, tampered with, or of a history that the run has left: REVISION_UNKNOWN."""
    engine, answer = grown(format)
    stranger = send(engine, format, 12, run_id="run-2").prompt.revision
    other_key, _ = grown(format, key=b"another key")
    tampered = bytes([answer.prompt.revision[0] ^ 1]) + answer.prompt.revision[1:]
    raw = body(format, history(format, 13)[-2:])
    for where, revision in (
        (engine, stranger),
        (engine, tampered),
        (engine, b"x"),
        (other_key, answer.prompt.revision),
    ):
        with pytest.raises(RevisionUnknown) as caught:
            where.trim(format, raw, base_revision=revision)
        assert ("base_revision", "REVISION_UNKNOWN") == (caught.value.field, caught.value.reason)
    with pytest.raises(RevisionUnknown):
        Engine(limit=LIMIT).trim(format, raw, base_revision=answer.prompt.revision)
    engine.trim(format, body(format, history(format, 12, task="Another task.")))
    with pytest.raises(RevisionUnknown):
        engine.trim(format, raw, base_revision=answer.prompt.revision)
