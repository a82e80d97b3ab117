"""Bad input: refused by the field at fault, and the run answers next as if it had never come."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson, InvalidPolicy, InvalidRequest, RevisionUnknown, SidecarError, TooLarge
from prompt_sidecar.facts.limits import Limits
from tests.engine.runs.making import (
    ANTHROPIC_MESSAGES,
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    Engine,
    body,
    facts,
    grown,
    history,
    send,
)
from tests.prompt.reading import fault

DEEP = b"[" * 100_000 + b"]" * 100_000

Spoil = Callable[[bytes], bytes]


def only(raw: bytes) -> Spoil:
    """These bytes, whatever was to be sent."""
    return lambda _: raw


def also(message: bytes) -> Spoil:
    """The body with one message more."""
    return lambda raw: raw[:-2] + b"," + message + b"]}"


def content(written: bytes) -> Spoil:
    """The body with one message more, of this content."""
    return also(b'{"role":"user","content":' + written + b"}")


def member(written: bytes) -> Spoil:
    """The body with one member more."""
    return lambda raw: raw[:-1] + b"," + written + b"}"


BODIES: Mapping[str, tuple[Spoil, str]] = {
    "nothing": (only(b""), "json.body"),
    "not JSON": (only(b"hello"), "json.body"),
    "cut off": (lambda raw: raw[:-3], "json.body"),
    "junk after": (lambda raw: raw + b"x", "json.body"),
    "a number": (only(b"1"), "json.body"),
    "nested arrays": (only(DEEP), "json.body"),
    "nested arrays in a message": (content(DEEP), "json.body"),
    "no messages": (only(b'{"model":"gpt-4o"}'), "json.body"),
    "empty list": (only(b'{"messages":[]}'), "json.body.messages"),
    "empty array": (only(b"[]"), "json.body.messages"),
    "messages an object": (only(b'{"messages":{}}'), "json.body.messages"),
    "a message a number": (also(b"7"), "json.body.messages[{n}]"),
    "no role": (also(b"{}"), "json.body.messages[{n}].role"),
    "content a number": (content(b"7"), "json.body.messages[{n}].content"),
    "a block a string": (content(b'["x"]'), "json.body.messages[{n}].content[0]"),
    "NaN in a message": (content(b'"x","n":NaN'), "json.body"),
    "broken UTF-8": (content(b'"\xff"'), "json.body"),
    "messages twice": (member(b'"messages":[1]'), "json.body"),
    "model twice": (member(b'"model":"gpt-4"'), "json.body"),
    "nested arrays in tools": (member(b'"tools":' + DEEP), "json.body"),
}


def unharmed(format: str, field: str, kind: type[SidecarError], bad: Callable[[Engine], object]) -> None:
    """Do something bad to a run: it is refused by name, and the run's next answers are those of one that was spared."""
    spared, _ = grown(format)
    engine, _ = grown(format)
    with pytest.raises(kind) as caught:
        bad(engine)
    assert field == caught.value.field
    for iterations in (13, 14):
        assert facts(send(spared, format, iterations)) == facts(send(engine, format, iterations))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("format", FORMATS)
def test_bad_bodies(format: str, name: str) -> None:
    """A body that cannot be read, before it or after what is known: InvalidJson, and nothing else happened."""
    spoil, field = BODIES[name]
    messages = history(format, 13)
    raw = spoil(body(format, messages))
    spared, engine = (grown(format)[0] for _ in range(2))
    with pytest.raises(InvalidJson) as caught:
        engine.trim(format, raw)
    assert caught.value.field.startswith(field.replace("{n}", str(len(messages))))
    for iterations in (13, 14):
        assert facts(send(spared, format, iterations)) == facts(send(engine, format, iterations))


@pytest.mark.parametrize("depth", [300, 490, 700, 1_000])
@pytest.mark.parametrize("format", FORMATS)
def test_depths_that_a_parser_takes(format: str, depth: int) -> None:
    """Deep but not too deep for a parser: answered or refused by name, with no error of the interpreter."""
    nested = b"[" * depth + b"]" * depth
    messages = history(format, 13)
    raw = content(b'"x","m":' + nested)(body(format, messages))
    refused = fault(lambda: grown(format)[0].trim(format, raw))
    assert refused in (None, "json.body", f"json.body.messages[{len(messages)}]")


@pytest.mark.parametrize("type_", [[], {}, ["text"], {"text": 1}])
@pytest.mark.parametrize("format", FORMATS)
def test_a_block_whose_type_is_no_string(format: str, type_: object) -> None:
    """Whatever stands as a block's type, the prompt is answered or refused, and the run goes on."""
    raw = body(format, [{"role": "user", "content": [{"type": type_, "text": "x"}]}])
    assert fault(lambda: Engine(limit=LIMIT).trim(format, raw)) in (None, "json.body.messages[0].content[0]")


FIELDS: Mapping[str, tuple[dict[str, Any], str, type[SidecarError]]] = {
    "unknown format": ({"format": "no_such_format"}, "json.format", InvalidRequest),
    "empty format": ({"format": ""}, "json.format", InvalidRequest),
    "pin below": ({"pinned": frozenset({-1})}, "annotations", InvalidRequest),
    "pin above": ({"pinned": frozenset({0, 10_000})}, "annotations", InvalidRequest),
    "negative window": ({"context_window": -1}, "context_window", InvalidRequest),
    "negative reserve": ({"output_reserve": -1}, "output_reserve", InvalidRequest),
    "reserve of the window": ({"output_reserve": LIMIT}, "output_reserve", InvalidRequest),
    "reserve above the window": ({"output_reserve": 10**9}, "output_reserve", InvalidRequest),
    "unknown preset": ({"preset": "x"}, "policy.preset", InvalidPolicy),
    "unknown policy field": ({"policy": {"x": 1}}, "policy.x", InvalidPolicy),
    "policy out of bounds": ({"policy": {"fit_high": 2.0}}, "policy.fit_high", InvalidPolicy),
    "marks out of order": ({"policy": {"fit_low": 0.995}}, "policy.fit_low", InvalidPolicy),
    "base revision": ({"base_revision": b"x"}, "base_revision", RevisionUnknown),
    "accept too little": ({"accept_bytes": 100}, "accept_bytes", TooLarge),
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("format", FORMATS)
def test_bad_fields(format: str, name: str) -> None:
    """A field out of its bounds is refused by name."""
    fields, field, kind = FIELDS[name]
    raw = body(format, history(format, 13))
    values: dict[str, Any] = {"format": format} | fields
    sent_as = values.pop("format")
    unharmed(format, field, kind, lambda engine: engine.trim(sent_as, raw, **values))


@pytest.mark.parametrize("fields", [{}, {"dry_run": True}, {"side_call": True}])
def test_a_bad_call_in_another_format(fields: dict[str, bool]) -> None:
    """A call that is refused, or only asks, in another format does not make the run forget what it decided."""
    spared, engine = (grown(OPENAI_CHAT)[0] for _ in range(2))
    for one in (spared, engine):
        send(one, OPENAI_CHAT, 13, context_window=2_500)  # a decision that the inputs below would not make again
    raw = b"not JSON" if not fields else body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, 2))
    refused = fault(lambda: engine.trim(ANTHROPIC_MESSAGES, raw, **fields))
    assert refused == (None if fields else "json.body")
    assert facts(send(spared, OPENAI_CHAT, 14)) == facts(send(engine, OPENAI_CHAT, 14))


@pytest.mark.parametrize("value", [1, {}, True, [1], ["x"]])
def test_system_of_a_wrong_shape(value: Any) -> None:
    """A system prompt that is neither a string nor blocks is refused by name."""
    engine = Engine(limit=LIMIT)
    raw = body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, 1), system=None)
    raw = b'{"system":' + json.dumps(value).encode() + b"," + raw[1:]
    if value in ([1], ["x"]):
        engine.trim(ANTHROPIC_MESSAGES, raw)  # blocks of a kind that nobody knows are the provider's business
        return
    with pytest.raises(InvalidJson) as caught:
        engine.trim(ANTHROPIC_MESSAGES, raw)
    assert "json.body.system" == caught.value.field


def test_too_many_messages() -> None:
    """More messages than the bound are refused, and the bound is named."""
    engine = Engine(limit=LIMIT, limits=Limits(run_messages=6))
    send(engine, OPENAI_CHAT, 2)
    with pytest.raises(TooLarge, match="run_messages") as caught:
        send(engine, OPENAI_CHAT, 3)
    assert "json.body.messages" == caught.value.field
    assert send(engine, OPENAI_CHAT, 2).fits


def test_a_refused_call_begins_no_run() -> None:
    """A run that never was sent a prompt is not known, and displaces none that was."""
    engine = Engine(limit=LIMIT, limits=Limits(runs=2))
    for run_id in ("one", "two"):
        send(engine, OPENAI_CHAT, 1, run_id=run_id)
    for number in range(3):
        with pytest.raises(InvalidJson):
            engine.trim(OPENAI_CHAT, b"hello", run_id=f"bad-{number}")
        send(engine, OPENAI_CHAT, 1, run_id=f"dry-{number}", dry_run=True)
    assert 2 == len(engine.runs)
    assert [1, 1] == [engine.runs.figures("promises", run_id).calls for run_id in ("one", "two")]


def test_no_text_of_the_prompt_in_errors() -> None:
    """Whatever is wrong, the message holds no word of the prompt."""
    engine = Engine(limit=LIMIT)
    for raw in (
        b'[{"role":"user","content":{"secret":"secret"}}]',
        b'[{"role":"secret"',
        b'{"secret":1,"secret":2,"messages":[1]}',
        b'[{"role":"user","content":[{"type":"text","text":"secret\xff"}]}]',
        b'[{"role":["secret"]}]',
    ):
        with pytest.raises(InvalidRequest) as caught:
            engine.trim(OPENAI_CHAT, raw)
        assert "secret" not in caught.value.message
