"""What a caller may ask for: no recall, pinned messages, windows and reserves."""

from __future__ import annotations

import json

import pytest

from prompt_sidecar.facts.trim_calls import NoFit, OwnTextKind, OwnTextPlace
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


@formats
def test_own_text_has_its_places(format: str) -> None:
    """Directives stand after the system prompt, registry where the format allows it, the note at the tail."""
    _, answer = grown(format)
    places = {own.kind: own.place for own in answer.prompt.own_text}
    assert OwnTextPlace.SYSTEM == places[OwnTextKind.DIRECTIVES]
    registry = OwnTextPlace.HISTORY if format == OPENAI_CHAT else OwnTextPlace.SYSTEM
    assert registry == places[OwnTextKind.REGISTRY]
    assert (OwnTextPlace.TAIL if format == OPENAI_CHAT else None) == places.get(OwnTextKind.NOTE)
    for own in answer.prompt.own_text:
        if own.message_index >= 0:
            assert {"role": "system", "content": own.text} == slices(answer.prompt.body)[own.message_index]
        else:
            assert own.text in [block["text"] for block in json.loads(answer.prompt.body or b"")["system"]]


@formats
def test_the_registry_names_what_can_be_fetched(format: str) -> None:
    """Every id in the registry and in a marker fetches the original that it stands for."""
    engine, answer = grown(format)
    assert answer.trimmed.stash_entries
    text = next(own.text for own in answer.prompt.own_text if own.kind is OwnTextKind.REGISTRY)
    for entry in answer.trimmed.stash_entries:
        assert f"id={entry.stash_id} tool=read" in text
        assert entry.original_bytes == len(engine.original(entry.stash_id) or b"")
    for stash_id in ids(answer):
        assert None is not engine.original(stash_id)


@formats
def test_recall_unavailable(format: str) -> None:
    """A model without recall tools is shown no id and none of our own text, however much is dropped."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    for number in range(13):
        answer = send(engine, format, number, recall_unavailable=True)
        assert () == tuple(answer.prompt.own_text)
        assert 0 == answer.tokens.own_text
        assert b"id=" not in (answer.prompt.body or b"")
        assert () == tuple(answer.trimmed.stash_entries)
    assert answer.trimmed.trims


@formats
def test_a_pinned_message_stays_byte_for_byte(format: str) -> None:
    """A pinned message comes back byte for byte, however tight the limit, and is no longer named later."""
    messages = history(format, 12)
    place = len(history(format, 1)) - 1
    pinned = json.dumps(messages[place]).encode()
    engine = Engine(limit=LIMIT, policy=ROOM)
    plain = Engine(limit=LIMIT, policy=ROOM)
    assert pinned not in (plain.trim(format, body(format, messages)).prompt.body or b"")
    assert pinned in (engine.trim(format, body(format, messages), pinned=frozenset({place})).prompt.body or b"")
    for iterations in (13, 16, 20):
        assert pinned in (send(engine, format, iterations).prompt.body or b"")


@formats
def test_a_revision_carries_a_pin(format: str) -> None:
    """A process that has the revision alone leaves a pinned message as it is when its turn to be trimmed comes."""
    messages = history(format, 12)
    place = len(history(format, 11)) - 1
    pinned = json.dumps(messages[place]).encode()
    first = Engine(limit=LIMIT, policy=ROOM).trim(format, body(format, messages), pinned=frozenset({place}))
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    send(plain, format, 12)
    engine.trim(format, body(format, messages), revision=first.prompt.revision)
    for iterations in (16, 20, 30):
        assert pinned in (send(engine, format, iterations).prompt.body or b"")
    assert pinned not in (send(plain, format, 30).prompt.body or b"")


@formats
def test_a_prompt_that_is_left_alone_keeps_the_space_between_its_messages(format: str) -> None:
    """Where nothing is trimmed and no text of ours is added, the body is the one that was sent, byte for byte."""
    raw = body(format, history(format, 3)).replace(b"}, {", b"} ,\n\t {")
    answer = Engine(limit=100_000).trim(format, raw, recall_unavailable=True)
    assert raw.count(b"} ,\n\t {") > 3
    assert raw == answer.prompt.body


@formats
def test_pinned_too_late(format: str) -> None:
    """Pinning what is trimmed already keeps it as it is."""
    engine, before = grown(format)
    place = len(history(format, 1)) - 1
    again = engine.trim(format, body(format, history(format, 12)), pinned=frozenset({place}))
    assert before.trimmed.trims == again.trimmed.trims


def test_pinning_a_leading_system_message() -> None:
    """A leading system message may be pinned too; it is never trimmed anyway."""
    engine = Engine(limit=LIMIT)
    answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, 12)), pinned=frozenset({0}))
    assert "You are careful." == slices(answer.prompt.body)[0]["content"]


@pytest.mark.parametrize(
    ("asked", "fields", "limit"),
    [
        ({}, {"context_window": 0, "model": "gpt-4"}, 8_192),
        ({}, {"context_window": 5_000, "model": "gpt-4"}, 5_000),
        ({}, {"context_window": 50_000, "model": "gpt-4"}, 8_192),
        ({}, {"context_window": 0, "model": "nobody-knows"}, 128_000),
        ({"model": "gpt-4"}, {"context_window": 0}, 8_192),
        ({"max_tokens": 192}, {"context_window": 0, "model": "gpt-4"}, 8_000),
        ({"max_tokens": 192}, {"context_window": 0, "model": "gpt-4", "output_reserve": 92}, 8_100),
        ({"max_tokens": 192, "max_completion_tokens": 92}, {"context_window": 0, "model": "gpt-4"}, 8_100),
        ({"max_tokens": 10**9}, {"context_window": 0, "model": "gpt-4"}, 4_096),
        ({"max_tokens": None}, {"context_window": 0, "model": "gpt-4"}, 8_192),
        ({"max_tokens": "many"}, {"context_window": 0, "model": "gpt-4"}, 8_192),
    ],
)
def test_the_limit_is_the_least_window_less_the_reserve(
    asked: dict[str, object], fields: dict[str, object], limit: int
) -> None:
    """The limit is the least window, less what is reserved for the answer: what the call says, else the body."""
    raw = json.dumps({"messages": history(OPENAI_CHAT, 1)} | asked).encode()
    values: dict[str, object] = {"output_reserve": None} | fields
    assert limit == Engine(limit=1).trim(OPENAI_CHAT, raw, **values).tokens.limit


def test_why_it_does_not_fit() -> None:
    """A prompt over its limit says why: protected text, the policy, or what the stash cannot hold."""
    long = [*history(OPENAI_CHAT, 0), {"role": "user", "content": "word " * 9_000}]
    raw = body(OPENAI_CHAT, long)
    assert NoFit.PROTECTED_TEXT == Engine(limit=LIMIT).trim(OPENAI_CHAT, raw).no_fit
    assert NoFit.POLICY == Engine(limit=LIMIT, preset="cap_only").trim(OPENAI_CHAT, raw).no_fit
    answer = send(Engine(limit=LIMIT), OPENAI_CHAT, 12)
    assert (True, None) == (answer.fits, answer.no_fit)
    assert answer.tokens.after <= answer.tokens.limit


def test_tool_schemas_count() -> None:
    """Tools of a body take tokens, however they are spelled."""
    messages = history(OPENAI_CHAT, 1)
    tools = [{"type": "function", "function": {"name": "read", "description": "Reads a file. " * 50}}]
    without, with_tools, spaced = (
        Engine(limit=LIMIT).trim(OPENAI_CHAT, raw).tokens.before
        for raw in (
            json.dumps({"messages": messages}).encode(),
            json.dumps({"messages": messages, "tools": tools}).encode(),
            json.dumps({"messages": messages, "tools": tools}, indent=3).encode(),
        )
    )
    assert without + 150 < with_tools == spaced


def test_figures_of_a_bare_array() -> None:
    """A bare array of the format whose system prompt is a member: our text is handed to the caller."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answer = engine.trim(ANTHROPIC_MESSAGES, json.dumps(history(ANTHROPIC_MESSAGES, 12)).encode())
    assert {OwnTextPlace.CALLER} == {own.place for own in answer.prompt.own_text}
    assert len(answer.trimmed.trims) > 0


@formats
@pytest.mark.parametrize("preset", ["cache_first", "fit_only"])
def test_the_same_history_under_a_lower_limit(format: str, preset: str) -> None:
    """A prompt that a provider refused is sent again with less room: it fits then, and what was trimmed stays so."""
    engine = Engine(limit=60_000, preset=preset, policy=ROOM)
    before = send(engine, format, 12)
    assert not before.trimmed.trims
    after = send(engine, format, 12, context_window=4_000)
    assert after.fits
    assert after.cache.batch_point
    assert after.prompt.body == send(engine, format, 12, context_window=4_000).prompt.body
    assert after.prompt.body == send(engine, format, 12).prompt.body
