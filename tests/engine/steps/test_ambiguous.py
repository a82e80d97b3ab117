"""Messages that two parsers may read differently pass as they are or are dropped whole; the rest is served."""

from __future__ import annotations

import json
import zlib
from random import Random
from typing import Any

import msgspec
import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.trim.entries import Action
from prompt_sidecar.trim.presets import PRESETS
from prompt_sidecar.trim.revision import seal, unseal
from tests.conformance.table import CASES
from tests.engine.runs.making import ANTHROPIC_MESSAGES, OPENAI_CHAT, body, history
from tests.oracle import data
from tests.promises.engine import KEY, Engine
from tests.steps import steps

formats = pytest.mark.parametrize("format", sorted(CASES))
LIMIT = 3_000
MEMBER = {"openai_responses": "input", "gemini_contents": "contents"}
HALF = "\ud83d"


def ambiguous(message: Any, how: str) -> Any:
    """A message with half a character in its first longer text, with a key twice, or with a number too large."""
    if how == "twice":
        name = next(iter(message))
        return Raw(
            json.dumps(message).replace("{", "{" + json.dumps(name) + ": " + json.dumps(message[name]) + ", ", 1)
        )
    if how == "large":
        return Raw(json.dumps(message).replace("{", '{"from_a_tool": [-1E+400, "1e400"], ', 1))
    return Raw(json.dumps(_cut(message)[0]))


class Raw(str):
    """A message as it is written."""

    __slots__ = ()


def _cut(value: Any) -> tuple[Any, bool]:
    """A value with half a character in its first text of more than 20 characters with a space; whether it has one."""
    if isinstance(value, str) and len(value) > 20 and " " in value and not value.startswith("{"):
        return value[:10] + HALF + value[10:], True
    if isinstance(value, list):
        done = list(value)
        for index, each in enumerate(value):
            done[index], found = _cut(each)
            if found:
                return done, True
    if isinstance(value, dict):
        for name, each in value.items():
            cut, found = _cut(each)
            if found:
                return {**value, name: cut}, True
    return value, False


def written(format: str, whole: dict[str, Any], messages: list[Any]) -> bytes:
    """A body with these messages."""
    member = MEMBER.get(format, "messages")
    joined = ",".join(each if isinstance(each, Raw) else json.dumps(each) for each in messages)
    rest = {name: value for name, value in whole.items() if name != member}
    return (json.dumps({member: 0, **rest}).replace(f'"{member}": 0', f'"{member}": [{joined}]', 1)).encode()


def spoiled(format: str, how: str, seed: int) -> tuple[dict[str, Any], list[Any], list[Raw]]:
    """A long history in which some messages are ambiguous: a call, a result, and whatever chance picks."""
    whole = CASES[format].history(Random(seed), 14)
    messages = list(whole[MEMBER.get(format, "messages")])
    chance = Random(seed)
    places = sorted(chance.sample(range(1, len(messages)), 3))
    raws = []
    for place in places:
        raw = ambiguous(messages[place], how)
        if json.loads(raw) != messages[place] or how == "twice":
            messages[place] = raw
            raws.append(raw)
    return whole, messages, raws


@formats
@pytest.mark.parametrize("how", ["half", "twice", "large"])
@pytest.mark.parametrize("seed", range(3))
def test_it_passes_and_the_rest_is_served(format: str, how: str, seed: int) -> None:
    """Byte for byte, or dropped whole with exact originals, and no new defect, whatever is trimmed around it."""
    whole, messages, raws = spoiled(format, how, seed)
    engine, last = Engine(limit=LIMIT), None
    plain = written(format, whole, [json.loads(each) if isinstance(each, Raw) else each for each in messages])
    tolerated = set(CASES[format].defects(json.loads(plain)))
    leading = int(messages[0].get("role") in {"system", "developer"})
    counted = 0
    for length in range(1, len(messages) + 1):
        sent = written(format, whole, messages[:length])
        last = engine.trim(format, sent)
        counted += last.news.ambiguous
        for place, raw in enumerate(messages[:length]):
            if isinstance(raw, Raw) and raw.encode() not in (last.prompt.body or b""):
                _trimmed_exactly(engine, last, place - leading, raw)
    assert last is not None
    assert len(raws) == counted
    assert last.trimmed.trims
    assert set(CASES[format].defects(_plain(last))) <= tolerated
    for trim in last.trimmed.trims:
        assert engine.original(trim.stash_id) is not None
    same(engine.trim(format, last.prompt.body or b""), last)
    fresh = Engine(limit=LIMIT).trim(format, written(format, whole, messages), revision=last.prompt.revision)
    same(fresh, last)


def _trimmed_exactly(engine: Engine, answer: TrimAnswer, place: int, raw: Raw) -> None:
    """A message is gone with all of its items, or trimmed if it has half a character; originals have its spelling."""
    trims = [trim for trim in answer.trimmed.trims if trim.message_index == place]
    assert trims
    edited = Action.DROPPED not in {trim.action for trim in trims}
    assert not edited or ("1E+400" not in raw and json.loads(raw) == json.loads(raw, object_pairs_hook=_once))
    originals = [(engine.original(trim.stash_id) or b"?").decode() for trim in trims]
    assert all(each in raw or json.dumps(each)[1:-1] in raw or "\ufffd" in each for each in originals)
    body = (answer.prompt.body or b"").decode()
    lost = [half for half in ("\\ud83d", "1E+400") if half in raw and not any(half in each for each in originals)]
    assert not lost or (edited and all(half in body for half in lost))


def _once(pairs: list[tuple[str, Any]]) -> Any:
    """An object whose names are all different."""
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def same(one: TrimAnswer, other: TrimAnswer) -> None:
    """Two answers give the same prompt."""
    assert (one.prompt.body, list(one.trimmed.trims)) == (other.prompt.body, list(other.trimmed.trims))


def _plain(answer: TrimAnswer) -> Any:
    """A returned body as a provider reads it."""
    return json.loads((answer.prompt.body or b"").decode())


@formats
def test_around_the_messages(format: str) -> None:
    """System prompt and tools with half a character: they come back as they came, with our text beside them."""
    whole = CASES[format].history(Random(1), 4)
    text = json.dumps(whole)
    member = MEMBER.get(format, "messages")
    head, tail = json.dumps({name: value for name, value in whole.items() if name != member}), json.dumps(whole[member])
    cut = head.replace(': "', ': "\\ud83d', 1) if '"model"' not in head else head
    raw = (cut[:-1] + (", " if cut != "{}" else "") + f'"{member}": {tail}' + "}").encode()
    extra = raw[:-1] + b', "tools": [{"name": "a", "description": "cut \\ud83d", "description": "\\udc00 cut"}]}'
    for sent in (raw, extra if b'"tools"' not in raw else raw):
        engine = Engine(limit=50_000)
        answer = engine.trim(format, sent, recall_unavailable=True)
        assert sent == answer.prompt.body
        with_own = engine.trim(format, sent)
        assert with_own.prompt.body == engine.trim(format, with_own.prompt.body or b"").prompt.body
        assert sent.count(b"\\ud83d") == (with_own.prompt.body or b"").count(b"\\ud83d")
    assert text


@formats
@pytest.mark.parametrize("name", ["tools", "tool_choice", "metadata", "somewhere"])
def test_not_utf8_where_nobody_reads(format: str, name: str) -> None:
    """Refused, and the member is named; one whose name nobody knows may be text of the prompt, and is not shown."""
    whole = {key: value for key, value in CASES[format].history(Random(1), 2).items() if key != name}
    raw = json.dumps(whole).encode()[:-1] + b', "' + name.encode() + b'": {"a": "\xff"}}'
    with pytest.raises(InvalidJson) as caught:
        Engine(limit=50_000).trim(format, raw)
    assert ("json.body" if name == "somewhere" else f"json.body.{name}") == caught.value.field


def test_a_side_call_keeps_what_stands_between_messages() -> None:
    """Nothing trimmed: the very bytes that were sent; something trimmed: only its messages differ."""
    engine = Engine(limit=3_000)
    messages = history(OPENAI_CHAT, 14)
    spaced = json.dumps({"model": "gpt-4o", "messages": messages}, indent=2).encode()
    assert spaced == Engine(limit=3_000).trim(OPENAI_CHAT, spaced, side_call=True).prompt.body
    answer = engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, messages))
    assert answer.trimmed.trims
    sliced = engine.trim(OPENAI_CHAT, spaced, side_call=True)
    assert sliced.trimmed.trims
    assert spaced != sliced.prompt.body
    whole = json.loads(spaced)["messages"]
    got = json.loads(sliced.prompt.body or b"")["messages"]
    kept = [json.dumps(one, indent=2) for one, other in zip(whole, got, strict=True) if one == other]
    assert (sliced.prompt.body or b"").startswith(spaced[: spaced.index(b'"role"')])
    assert b"\n    },\n    {\n" in (sliced.prompt.body or b"")
    assert kept


def test_bound_reasoning_goes_from_it_too() -> None:
    """Where the model binds reasoning to what is before it, a cut removes it from such a message as well: no more."""
    messages = history(ANTHROPIC_MESSAGES, 12)
    thought = {"type": "thinking", "thinking": f"first {HALF} then", "signature": "c2ln" * 20}
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            message["content"].insert(0, thought | {"thinking": f"{number} first {HALF} then"})
            message["content"].insert(1, {"type": "text", "text": f"{number} cut \udc00 and {HALF} here"})
    engine = Engine(limit=LIMIT, policy={"reasoning_binding": "bound"})
    for length in range(1, len(messages) + 1, 2):
        sent = body(ANTHROPIC_MESSAGES, messages[:length])
        answer = engine.trim(ANTHROPIC_MESSAGES, sent)
        returned = json.loads(answer.prompt.body or b"")["messages"]
        same(engine.trim(ANTHROPIC_MESSAGES, sent), answer)
    assert any(trim.kind is ItemKind.REASONING for trim in answer.trimmed.trims)
    gone = {trim.message_index for trim in answer.trimmed.trims if trim.action is Action.DROPPED}
    edited = 0
    for place, message in enumerate(messages[:length]):
        if message["role"] == "assistant" and place not in gone:
            plain = message | {"content": message["content"][1:]}
            assert message in returned or plain in returned
            edited += plain in returned
    assert gone
    assert edited


def _long_result(how: str, half: str) -> bytes:
    """A run whose second message holds a call with a long ambiguous result, and then many short ones."""
    sent: list[Any] = [{"role": "user", "content": "task"}]
    for number in range(16):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "r", "arguments": "{}"}}
        text = half + "z y " * 3_000 if not number else f"line {number} of it\n" * 24
        sent.append({"role": "assistant", "tool_calls": [call]})
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": text}
        sent.append(ambiguous(result, how) if how != "half" and not number else result)
    return written(OPENAI_CHAT, {"model": "gpt-4o"}, sent)


@pytest.mark.parametrize(("how", "half"), [("half", HALF), ("half", "\udc00\n"), ("twice", ""), ("large", "")])
@pytest.mark.parametrize("preset", sorted(PRESETS.keys() - {"cap_only"}))
def test_a_long_old_result_goes(how: str, half: str, preset: str) -> None:
    """It is trimmed, or goes with its iteration, so that the prompt fits; its original is spelled as it came."""
    engine, raw = Engine(limit=LIMIT, preset=preset), _long_result(how, half)
    answer = engine.trim(OPENAI_CHAT, raw)
    assert answer.fits
    (of_result,) = (trim for trim in answer.trimmed.trims if trim.message_index == 2 and trim.kind is ItemKind.RESULT)
    original = engine.original(of_result.stash_id) or b""
    assert half or Action.DROPPED is of_result.action
    assert half + "z y " * 3_000 == (json.loads(original) if half else original.decode())
    assert original in raw


@pytest.mark.parametrize("parts", [3, 2_000])
def test_many_texts_with_half_a_character(parts: int) -> None:
    """Of very many texts in one message only the message itself has their spelling, at the cost of as many without."""
    taken = []
    for half in ("", HALF):
        use = {"type": "tool_use", "id": "c", "name": "r", "input": {}}
        many = [{"type": "text", "text": f"{half}word {number}"} for number in range(parts)]
        messages = history(ANTHROPIC_MESSAGES, 12)
        result = {"type": "tool_result", "tool_use_id": "c", "content": many}
        messages[1:1] = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        raw, engine = body(ANTHROPIC_MESSAGES, messages), Engine(limit=LIMIT)
        taken.append(steps(lambda: engine.trim(ANTHROPIC_MESSAGES, raw), "prompt"))  # noqa: B023 - called at once
    answer = engine.trim(ANTHROPIC_MESSAGES, raw)
    originals = [engine.original(trim.stash_id) or b"" for trim in answer.trimmed.trims if trim.message_index == 2]
    if parts == 3:
        assert [b'"\\ud83dword %d"' % number for number in range(3)] == originals
    else:
        assert any(original in raw and original.count(b"\\ud83d") == parts for original in originals)
    assert taken[1] < 3 * taken[0]


@formats
def test_an_elided_result_with_half_a_character(format: str) -> None:
    """A large one is capped as any other, in whatever form it comes back; its original is its raw JSON."""
    case = CASES[format]
    whole = case.history(Random(4), 6)
    member = MEMBER.get(format, "messages")
    found, long = None, "z y\n" * 20_000
    for place in range(len(whole[member]) - 1, 0, -1):
        changed, found = _with_result(whole[member][place], HALF + long)
        if found:
            whole[member][place] = changed
            break
    engine = Engine(limit=1_000_000)
    assert found
    answer = engine.trim(format, json.dumps(whole).encode())
    (trim,) = answer.trimmed.trims
    assert Action.ELIDED is trim.action
    assert json.dumps(HALF + long).encode() == engine.original(trim.stash_id)
    assert len(answer.prompt.body or b"") < len(json.dumps(whole))
    shown = json.loads(answer.prompt.body or b"")
    assert set(case.defects(shown)) <= set(case.defects(json.loads(json.dumps(whole).replace("\\ud83d", ""))))
    same(engine.trim(format, answer.prompt.body or b""), answer)
    same(engine.trim(format, json.dumps(whole).encode()), answer)
    same(Engine(limit=1_000_000).trim(format, json.dumps(whole).encode()), answer)


def _with_result(message: Any, text: str) -> tuple[Any, bool]:
    """A message with another text in its first result; whether it holds one."""
    if message.get("role") == "tool" and isinstance(message.get("content"), str):
        return message | {"content": text}, True
    if str(message.get("type")).endswith("call_output") and isinstance(message.get("output"), str):
        return message | {"output": text}, True
    for name in ("content", "parts"):
        parts = message.get(name)
        for at, part in enumerate(parts if isinstance(parts, list) else ()):
            other, found = _of_part(part, text)
            if found:
                return message | {name: [*parts[:at], other, *parts[at + 1 :]]}, True
    return message, False


def _of_part(part: Any, text: str) -> tuple[Any, bool]:
    if part.get("type") == "tool_result":
        return part | {"content": text}, True
    if part.get("type") == "tool-result":
        return part | {"output": {"type": "text", "value": text}}, True
    if "toolResult" in part:
        return part | {"toolResult": part["toolResult"] | {"content": [{"text": text}]}}, True
    for name in ("functionResponse", "function_response"):
        if name in part:
            return part | {name: part[name] | {"response": {"output": text}}}, True
    return part, False


@pytest.mark.parametrize("how", ["half", "twice"])
def test_a_revision_that_pinned_it(how: str) -> None:
    """Before, such a message was pinned: a run that goes on from such a revision keeps it as it is."""
    raw = _long_result(how, HALF if how == "half" else "")
    now = Engine(limit=1_000_000).trim(OPENAI_CHAT, raw)
    opened = unseal(KEY, now.prompt.revision)
    assert opened is not None
    messages, *rest = msgspec.msgpack.decode(zlib.decompress(opened.state))
    state = zlib.compress(msgspec.msgpack.encode(([[2], *messages[1:]], *rest)))
    earlier = seal(KEY, msgspec.structs.replace(opened, state=state, version=6))
    answer = Engine(limit=LIMIT).trim(OPENAI_CHAT, raw, revision=earlier)
    assert RevisionUse.APPLIED is answer.revision_use
    sent = raw[raw.index(b'{"role": "tool"') : raw.index(b"},{", raw.index(b'{"role": "tool"')) + 1]
    assert sent in (answer.prompt.body or b"")
    assert 2 not in {trim.message_index for trim in answer.trimmed.trims}


def test_other_calls_for_another_parser() -> None:
    """A result that answers another call for a parser that takes the first of two members stays, as does its call."""
    raw = _long_result("half", "")
    twice = raw.replace(b'"tool_call_id": "c0"', b'"tool_call_id": "c9", "tool_call_id": "c0"', 1)
    answer = Engine(limit=LIMIT).trim(OPENAI_CHAT, twice)
    assert b'"tool_call_id": "c9", "tool_call_id": "c0"' in (answer.prompt.body or b"")
    assert not answer.fits


def test_a_recorded_result_with_half_a_character() -> None:
    """It was never trimmed before, and its prompt never fit."""
    found = json.loads(data.need("failing/lone_surrogate_never_trimmed.json").read_text())
    engine = Engine(limit=found["context_window"])
    answer = engine.trim(OPENAI_CHAT, json.dumps(found["body"]).encode())
    assert answer.fits
    trim = next(trim for trim in answer.trimmed.trims if trim.message_index == 2)
    assert found["body"]["messages"][2]["content"] == json.loads(engine.original(trim.stash_id) or b"")


ODD_VALUES = ('["\\ud83d"]', '{"a": 1, "a": 2}', "[1e999]", '"\\ude00"')
"""Values that two parsers may read differently."""


@formats
@pytest.mark.parametrize("name", ["max_tokens", "max_output_tokens", "context_management", "thinking"])
@pytest.mark.parametrize("value", ODD_VALUES)
def test_members_that_say_how_to_trim(format: str, name: str, value: str) -> None:
    """One that says nothing that can be read is passed on as it came, and the prompt is served all the same."""
    whole = {key: member for key, member in CASES[format].history(Random(1), 8).items() if key != name}
    raw = json.dumps(whole).encode()[:-1] + f', "{name}": {value}}}'.encode()
    engine = Engine(limit=2_000, policy={"reasoning_drop_invalid": True})
    answer = engine.trim(format, raw, output_reserve=None)
    assert answer.trimmed.trims or answer.provider_edits
    assert f'"{name}": {value}'.encode() in (answer.prompt.body or b"")
