"""Bad input: refused by the field at fault, and the run answers next as if it had never come."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sidecar.errors import InvalidJson, InvalidPolicy, InvalidRequest, RevisionUnknown, SidecarError, TooLarge
from sidecar.run.limits import Limits
from tests.run.making import ANTHROPIC_MESSAGES, FORMATS, LIMIT, OPENAI_CHAT, Engine, body, facts, grown, history, send

DEEP = b"[" * 100_000 + b"]" * 100_000
JUST_DEEP = b"[" * 700 + b"]" * 700

BODIES: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda _: b"", "json.body"),
    "not JSON": (lambda _: b"hello", "json.body"),
    "cut off": (lambda raw: raw[:-3], "json.body"),
    "junk after": (lambda raw: raw + b"x", "json.body"),
    "a number": (lambda _: b"1", "json.body"),
    "nested arrays": (lambda _: DEEP, "json.body"),
    "nested arrays in a message": (lambda raw: raw.replace(b"]}", b',{"role":"user","content":%b}]}' % DEEP), "json.body"),
    "no messages": (lambda _: b'{"model":"gpt-4o"}', "json.body"),
    "empty list": (lambda _: b'{"messages":[]}', "json.body.messages"),
    "empty array": (lambda _: b"[]", "json.body.messages"),
    "messages an object": (lambda _: b'{"messages":{}}', "json.body.messages"),
    "a message a number": (lambda raw: raw[:-2] + b",7]}", "json.body.messages[{n}]"),
    "no role": (lambda raw: raw[:-2] + b",{}]}", "json.body.messages[{n}].role"),
    "content a number": (lambda raw: raw[:-2] + b',{"role":"user","content":7}]}', "json.body.messages[{n}].content"),
    "a block a string": (lambda raw: raw[:-2] + b',{"role":"user","content":["x"]}]}', "json.body.messages[{n}].content[0]"),
    "NaN in a message": (lambda raw: raw[:-2] + b',{"role":"user","content":"x","n":NaN}]}', "json.body"),
    "lone surrogate": (lambda raw: raw[:-2] + b',{"role":"user","content":"\\ud800"}]}', "json.body"),
    "broken UTF-8": (lambda raw: raw[:-2] + b',{"role":"user","content":"\xff"}]}', "json.body"),
    "key twice": (lambda raw: raw[:-2] + b',{"role":"user","content":"x","content":"y"}]}', "json.body.messages[{n}]"),
    "key twice, deep": (lambda raw: raw[:-2] + b',{"role":"user","content":"x","m":{"a":1,"\\u0061":2}}]}', "json.body.messages[{n}]"),
    "deep but not too deep for a parser": (
        lambda raw: raw[:-2] + b',{"role":"user","content":"x","m":%b}]}' % JUST_DEEP, "json.body.messages[{n}]"
    ),
    "messages twice": (lambda raw: raw[:-1] + b',"messages":[1]}', "json.body"),
    "model twice": (lambda raw: raw[:-1] + b',"model":"gpt-4"}', "json.body"),
    "key twice in tools": (lambda raw: raw[:-1] + b',"tools":[{"a":1,"a":2}]}', "json.body.tools"),
    "lone surrogate in tools": (lambda raw: raw[:-1] + b',"tools":["\\udfff"]}', "json.body"),
    "nested arrays in tools": (lambda raw: raw[:-1] + b',"tools":' + DEEP + b"}", "json.body"),
}  # fmt: skip


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
    if name == "deep but not too deep for a parser":
        not_internal(format, raw)
        return
    unharmed_field = field.replace("{n}", str(len(messages)))
    spared, _ = grown(format)
    engine, _ = grown(format)
    with pytest.raises(InvalidJson) as caught:
        engine.trim(format, raw)
    assert caught.value.field.startswith(unharmed_field)
    for iterations in (13, 14):
        assert facts(send(spared, format, iterations)) == facts(send(engine, format, iterations))


def not_internal(format: str, raw: bytes) -> None:
    """A body that a parser takes is answered or refused by name, with no error of the interpreter."""
    engine, _ = grown(format)
    try:
        engine.trim(format, raw)
    except SidecarError as error:
        assert error.field.startswith("json.body")


@pytest.mark.parametrize("type_", [[], {}, ["text"], {"text": 1}])
@pytest.mark.parametrize("format", FORMATS)
def test_a_block_whose_type_is_no_string(format: str, type_: object) -> None:
    """Whatever stands as a block's type, the prompt is answered or refused, and the run goes on."""
    engine = Engine(limit=LIMIT)
    raw = body(format, [{"role": "user", "content": [{"type": type_, "text": "x"}]}])
    try:
        engine.trim(format, raw)
    except SidecarError as error:
        assert error.field.startswith("json.body.messages[0]")


FIELDS: Mapping[str, tuple[dict[str, Any], str, type[SidecarError]]] = {
    "unknown format": ({"format": "openai_responses"}, "json.format", InvalidRequest),
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
    "marks out of order": ({"policy": {"fit_low": 0.95}}, "policy.fit_low", InvalidPolicy),
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
    unharmed(
        format,
        field,
        kind,
        lambda engine: engine.trim(values["format"], raw, **{k: v for k, v in values.items() if k != "format"}),
    )


@pytest.mark.parametrize("fields", [{}, {"dry_run": True}, {"side_call": True}])
def test_a_bad_call_in_another_format(fields: dict[str, bool]) -> None:
    """A call that is refused, or only asks, in another format does not make the run forget what it decided."""
    spared, engine = (grown(OPENAI_CHAT)[0] for _ in range(2))
    for one in (spared, engine):
        send(one, OPENAI_CHAT, 13, context_window=2_500)  # a decision that the inputs below would not make again
    raw = b"not JSON" if not fields else body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, 2))
    try:
        engine.trim(ANTHROPIC_MESSAGES, raw, **fields)
    except InvalidJson as error:
        assert "json.body" == error.field
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
        b'[{"role":"user","content":"secret","content":"secret"}]',
        b'[{"role":"secret"',
        b'{"secret":1,"secret":2,"messages":[1]}',
        b'[{"role":"user","content":[{"type":"text","text":"secret\\ud800"}]}]',
        b'[{"role":["secret"]}]',
    ):
        with pytest.raises(InvalidRequest) as caught:
            engine.trim(OPENAI_CHAT, raw)
        assert "secret" not in caught.value.message
