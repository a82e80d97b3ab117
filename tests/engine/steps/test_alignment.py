"""What agents do between calls: move marks, adopt prompts, change the system prompt, branch and go back."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.trim.own_text import DROPPED_UNCOUNTED
from tests.engine.runs.making import (
    ANTHROPIC_MESSAGES,
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    ROOM,
    Engine,
    body,
    facts,
    grown,
    history,
    ids,
    result_text,
    send,
    slices,
)
from tests.oracle import data
from tests.oracle.respell import SPELLINGS

formats = pytest.mark.parametrize("format", FORMATS)
OPENAI_RESPONSES = "openai_responses"


def sticky(before: TrimAnswer, after: TrimAnswer) -> None:
    """Every decision of the one answer stands in the other, unless its message was shrunk further."""
    order = ["elided", "clipped", "dropped"]
    later = {trim.stash_id: trim for trim in after.trimmed.trims}
    for trim in before.trimmed.trims:
        assert trim.stash_id in later
        assert order.index(later[trim.stash_id].action.value) >= order.index(trim.action.value)


def marked(messages: list[Any]) -> list[Any]:
    """The history with a cache mark on the last block of its last message."""
    found = copy.deepcopy(messages)
    found[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return found


def test_a_cache_mark_that_leaves_the_system_prompt() -> None:
    """A mark that the system prompt has in the first call alone is no cache break."""
    engine, mark = Engine(limit=LIMIT), {"cache_control": {"type": "ephemeral"}}
    for number in range(1, 4):
        block = {"type": "text", "text": "You are careful."} | (mark if number == 1 else {})
        answer = engine.trim(
            ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, history(ANTHROPIC_MESSAGES, number), system=[block])
        )
        assert (None, number > 1) == (answer.news.cache_break, answer.cache.first_changed > 0)


def test_moving_cache_marks() -> None:
    """A mark that moves on at every call changes no identity: history and decisions stay."""
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    for number in range(14):
        messages = history(ANTHROPIC_MESSAGES, number)
        expected = plain.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
        answer = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, marked(messages)))
        assert expected.trimmed.trims == answer.trimmed.trims
        assert (expected.cache.kept, expected.cache.batch_points) == (answer.cache.kept, answer.cache.batch_points)
        unmarked = (answer.prompt.body or b"").replace(b', "cache_control": {"type": "ephemeral"}', b"")
        assert expected.prompt.body == unmarked


BREAKPOINT = ', "prompt_cache_breakpoint": {"mode": "explicit"}'
"""OpenAI's mark, as it is written in a body."""


@pytest.mark.parametrize("format", [OPENAI_CHAT, OPENAI_RESPONSES])
@pytest.mark.parametrize("system", [True, False])
def test_a_moving_cache_breakpoint(format: str, system: bool) -> None:
    """OpenAI's mark on the newest result, or first on the system prompt, is no cache break, and changes no decision."""
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    for number in range(1, 14):
        sent = _with_parts(format, number)
        place = 0 if system and number == 1 else -1
        raw = json.dumps(sent).encode()
        sent[place][_member(format, sent[place])][-1] |= json.loads("{" + BREAKPOINT[2:] + "}")
        expected = plain.trim(format, _of_openai(format, json.loads(raw)))
        answer = engine.trim(format, _of_openai(format, sent))
        assert expected.trimmed.trims == answer.trimmed.trims
        assert expected.cache == answer.cache
        assert 1 == (answer.prompt.body or b"").count(BREAKPOINT.encode())
        assert expected.prompt.body == (answer.prompt.body or b"").replace(BREAKPOINT.encode(), b"")


def _with_parts(format: str, iterations: int) -> list[Any]:
    """A history whose texts are lists of parts, as a mark needs them."""
    responses = format == OPENAI_RESPONSES
    kind = "input_text" if responses else "text"
    sent: list[Any] = [
        {"role": role, "content": [{"type": kind, "text": text}]}
        for role, text in (("developer", "You are careful."), ("user", "Find the bug."))
    ]
    for number in range(iterations):
        parts = [{"type": kind, "text": result_text(number)}]
        call = {"name": "read", "arguments": json.dumps({"path": f"{number}.py"})}
        if responses:
            sent.append({"type": "function_call", "call_id": f"c{number}", **call})
            sent.append({"type": "function_call_output", "call_id": f"c{number}", "output": parts})
        else:
            calls = [{"id": f"c{number}", "type": "function", "function": call}]
            sent.append({"role": "assistant", "tool_calls": calls})
            sent.append({"role": "tool", "tool_call_id": f"c{number}", "content": parts})
    return sent


def _member(format: str, message: Any) -> str:
    return "output" if format == OPENAI_RESPONSES and "role" not in message else "content"


def _of_openai(format: str, messages: list[Any]) -> bytes:
    member = "input" if format == OPENAI_RESPONSES else "messages"
    return json.dumps({"model": "gpt-5.6-sol", "store": False, member: messages}).encode()


def test_a_recorded_breakpoint_that_moved() -> None:
    """A history whose breakpoint moved on to its end: what is new, after our first message, is all that changed."""
    first = json.loads(data.need("failing/breakpoint_moves.json").read_text())["body"]["first"]
    second = json.loads(json.dumps(first))
    mark = second["messages"][-1]["content"][0].pop("prompt_cache_breakpoint")
    call = {**second["messages"][1]["tool_calls"][0], "id": "b"}
    part = {"type": "text", "text": "two", "prompt_cache_breakpoint": mark}
    second["messages"].append({"role": "assistant", "tool_calls": [call]})
    second["messages"].append({"role": "tool", "tool_call_id": "b", "content": [part]})
    engine = Engine(limit=LIMIT)
    engine.trim(OPENAI_CHAT, json.dumps(first).encode())
    answer = engine.trim(OPENAI_CHAT, json.dumps(second).encode())
    assert (1 + 3, None) == (answer.cache.first_changed, answer.news.cache_break)


def test_a_mark_on_a_trimmed_result_stays() -> None:
    """A mark on a block that is trimmed comes back with the block."""
    engine, answer = grown(ANTHROPIC_MESSAGES)
    place = next(
        trim.message_index
        for trim in answer.trimmed.trims
        if trim.kind.value == "result" and trim.action.value != "dropped"
    )
    messages = history(ANTHROPIC_MESSAGES, 12)
    messages[place]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    again = engine.trim(ANTHROPIC_MESSAGES, body(ANTHROPIC_MESSAGES, messages))
    assert answer.trimmed.trims == again.trimmed.trims
    assert 1 == (again.prompt.body or b"").count(b"cache_control")


@pytest.mark.parametrize("system", ["You are careful.", None, [{"type": "text", "text": "A"}]])
def test_adopting_our_system_blocks(system: Any) -> None:
    """An agent that keeps the system prompt it got sends our blocks back: they are recognised, and stand once."""
    format = ANTHROPIC_MESSAGES
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    adopted = system
    for number in range(16):
        expected = plain.trim(format, body(format, history(format, number), system=system))
        answer = engine.trim(format, body(format, history(format, number), system=adopted))
        assert json.loads(expected.prompt.body or b"") == json.loads(answer.prompt.body or b"")
        assert (expected.tokens, expected.trimmed.trims) == (answer.tokens, answer.trimmed.trims)
        adopted = json.loads(answer.prompt.body or b"")["system"]
    assert 2 <= len(adopted)


def original(engine: Engine, stash_id: str) -> object:
    """An original, decoded where it is JSON: that is kept in the spelling in which it came."""
    found = engine.original(stash_id) or b""
    return json.loads(found) if found[:1] == b"{" else found


@formats
@pytest.mark.parametrize("name", ["plain", *sorted(SPELLINGS)])
def test_adopting_the_whole_prompt(format: str, name: str) -> None:
    """An agent that keeps what it got, in its own spelling, and adds to it gets the answers of one that does not."""
    spell = SPELLINGS.get(name, bytes)
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    held: dict[str, Any] = json.loads(body(format, history(format, 0)))
    for number in range(14):
        expected = send(plain, format, number)
        new = history(format, number)[len(history(format, number - 1)) :] if number else []
        held["messages"] += new
        answer = engine.trim(format, spell(json.dumps(held).encode()))
        assert json.loads(expected.prompt.body or b"") == json.loads(answer.prompt.body or b"")
        assert [original(engine, i) for i in ids(answer)] == [original(plain, i) for i in ids(expected)]
        held = json.loads(answer.prompt.body or b"")


@formats
@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_adopted_and_sent_to_a_fresh_process(format: str, name: str) -> None:
    """A process that does not know the run takes an adopted prompt, our text in it, alike in every spelling."""
    _, answer = grown(format)
    fresh = Engine(limit=LIMIT, policy=ROOM)
    one = fresh.trim(format, answer.prompt.body or b"")
    again = fresh.trim(format, SPELLINGS[name](answer.prompt.body or b""))
    assert json.loads(one.prompt.body or b"") == json.loads(again.prompt.body or b"")


def systems(format: str, messages: list[Any], text: str) -> bytes:
    """The body with another system prompt."""
    if format == OPENAI_CHAT:
        return body(format, [{"role": "system", "content": text}, *messages[1:]])
    return body(format, messages, system=text)


@formats
def test_a_system_prompt_that_changes(format: str) -> None:
    """A date in the system prompt changes at every call: decisions stay, and the history is not taken for another."""
    plain, engine = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    for number in range(14):
        messages = history(format, number)
        expected = plain.trim(format, systems(format, messages, "It is 12:00:00."))
        answer = engine.trim(format, systems(format, messages, f"It is 12:00:{number:02}."))
        assert expected.trimmed.trims == answer.trimmed.trims
        assert f"12:00:{number:02}" in (answer.prompt.body or b"").decode()
        assert (expected.prompt.body or b"").replace(b"12:00:00", b"12:00:%02d" % number) == answer.prompt.body
        assert 0 == answer.cache.kept or number == 0 or answer.cache.kept == 0


@formats
def test_an_ephemeral_message_at_the_tail(format: str) -> None:
    """A reminder that stands at the end of each prompt and is gone in the next makes no decision come undone."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    before: TrimAnswer | None = None
    for number in range(16):
        reminder = {"role": "user", "content": [{"type": "text", "text": f"Reminder {number}: be brief."}]}
        answer = engine.trim(format, body(format, [*history(format, number), reminder]))
        shown = slices(answer.prompt.body)
        assert reminder in shown[-2:]
        assert 1 == sum("Reminder" in json.dumps(message) for message in shown)
        if before is not None:
            sticky(before, answer)
        assert answer.fits
        before = answer


@formats
def test_a_branch_keeps_the_decisions_in_common(format: str) -> None:
    """A history that goes on otherwise keeps the decisions of what is common, and originals of both can be fetched."""
    engine, answer = grown(format, 12)
    common = history(format, 9)
    branch = [*common, {"role": "user", "content": [{"type": "text", "text": "Try another way."}]}]
    other = engine.trim(format, body(format, branch))
    indices = {trim.stash_id: trim.message_index for trim in answer.trimmed.trims}
    first_new = len(common) - (format == OPENAI_CHAT)
    kept = [stash_id for stash_id in ids(answer) if indices[stash_id] < first_new]
    live = {trim.stash_id: trim for trim in other.trimmed.trims}
    dropped = [trim.stash_id for trim in answer.trimmed.trims if trim.action.value == "dropped"]
    assert [] == [stash_id for stash_id in kept if stash_id not in live and stash_id not in dropped]
    assert other.fits
    for stash_id in {*ids(answer), *ids(other)}:
        assert None is not engine.original(stash_id)
    assert "Try another way." in (other.prompt.body or b"").decode()


@formats
def test_going_back_and_forth(format: str) -> None:
    """Whatever was sent before, the same prompt twice has the same answer, and every answer fits and is whole."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    for number in (14, 3, 12, 12, 1, 16, 0, 9, 20, 19, 20):
        one, other = send(engine, format, number), send(engine, format, number)
        assert (one.prompt.body, one.trimmed.trims, one.prompt.revision) == (
            other.prompt.body,
            other.trimmed.trims,
            other.prompt.revision,
        )
        assert one.fits
        assert number + 1 == one.iteration
        for trim in one.trimmed.trims:
            assert None is not engine.original(trim.stash_id)


@formats
def test_the_same_call_again(format: str) -> None:
    """A retry is the same iteration: nothing is rewritten, nothing decided anew, the whole prefix kept."""
    engine, answer = grown(format)
    again = send(engine, format, 12)
    assert (answer.prompt.body, answer.trimmed.trims, answer.prompt.revision) == (
        again.prompt.body,
        again.trimmed.trims,
        again.prompt.revision,
    )
    assert not again.trimmed.compacted
    assert not again.cache.batch_point
    assert answer.trimmed.trims is again.trimmed.trims
    assert facts(again) == facts(send(engine, format, 12))


@formats
def test_decisions_are_sticky(format: str) -> None:
    """From one call to the next an item only shrinks, and between batch points nothing before the new part changes."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    before = send(engine, format, 0)
    for number in range(1, 30):
        answer = send(engine, format, number)
        sticky(before, answer)
        if not answer.cache.batch_point:
            old = slices(before.prompt.body)
            cut = len(old) - sum(own.place.value == "tail" for own in before.prompt.own_text)
            assert old[:cut] == slices(answer.prompt.body)[:cut]
        before = answer


@pytest.mark.parametrize("limit", [120, 160, 200, 350, 450, 500, 550, 600])
def test_iterations_that_look_alike(limit: int) -> None:
    """An agent that takes the same step again and again, and goes on from what it got, may retry at any point."""
    engine = Engine(limit=limit)
    step = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "click", "input": {"ref": "E54"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "the same page " * 30}]},
    ]
    kept: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Find the room."}]}]
    for number in range(1, 14):
        sent = body(ANTHROPIC_MESSAGES, [*kept, *step])
        answer, again = (engine.trim(ANTHROPIC_MESSAGES, sent) for _ in range(2))
        assert answer.prompt.body == again.prompt.body
        assert 1 + number == answer.iteration == again.iteration
        kept = slices(answer.prompt.body)


@formats
def test_the_placeholder_of_another_process(format: str) -> None:
    """A text of ours that says nothing of the run is known to a process that has not written it: it stands once."""
    answer = Engine(limit=60).trim(format, body(format, history(format, 12)))
    assert DROPPED_UNCOUNTED.encode() in (answer.prompt.body or b"")
    later = Engine(limit=60)
    more = history(format, 14)[-4:]
    adopted = json.loads(answer.prompt.body or b"")
    adopted["messages"] += more
    first, second = (later.trim(format, json.dumps(adopted).encode()) for _ in range(2))
    assert 1 == (first.prompt.body or b"").count(DROPPED_UNCOUNTED.encode())
    assert first.prompt.body == second.prompt.body
