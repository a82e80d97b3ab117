"""The oracle accepts what providers accepted, and each of its rules rejects a prompt that breaks just that rule."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from tests.oracle import data
from tests.oracle.alignment import alignment, order_kept, text_may_stand_for
from tests.oracle.runs import Run, Shape, recorded, recorded_paths, synthetic, turns
from tests.oracle.shapes import ANTHROPIC_MESSAGES, FORMATS, OPENAI_CHAT
from tests.oracle.validity import (
    NOWHERE,
    Defect,
    Kind,
    defects,
    independent_defects,
    independent_new_defects,
    new_defects,
    no_new_defects,
    refused,
)

TRAFFIC = "provider-traffic/requests.jsonl.gz"
WIRE = {"openai.chat": OPENAI_CHAT, "anthropic.messages": ANTHROPIC_MESSAGES}


def _openai_call(call_id: str = "c", arguments: object = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def _answers(call_id: str = "c") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def _use(call_id: str = "c", value: object = None, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if value is None else value}


def _result(call_id: str = "c", content: object = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def _text(text: str = "hello") -> dict[str, Any]:
    return {"type": "text", "text": text}


def _assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


ASK = {"role": "user", "content": "ask"}
MARKED = _text() | {"cache_control": {"type": "ephemeral"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}

GOOD: dict[str, list[list[Any]]] = {
    OPENAI_CHAT: [
        [ASK],
        [
            {"role": "system", "content": "s"},
            ASK,
            _asks(_openai_call("a"), _openai_call("b")),
            _answers("b"),
            _answers("a"),
        ],
        [
            ASK,
            _asks(_openai_call("")),
            _answers(""),
            _asks(_openai_call("")),
            _answers(""),
            {"role": "assistant", "content": "end"},
        ],
        [
            ASK,
            _asks(_openai_call(""), _openai_call("")),
            _answers(""),
            _answers(""),
            {"role": "system", "content": "note"},
        ],
    ],
    ANTHROPIC_MESSAGES: [
        [ASK],
        [ASK, _assistant(THINKING, _text(), _use("a"), _use("b")), _user(_result("b"), _result("a"), _text())],
        [ASK, _assistant(_use()), _user(_result("c", [_text()])), _assistant(_use()), _user(_result("c", ""))],
        [ASK, _assistant(_use()), _user(_result()), {"role": "system", "content": "note"}, _assistant(_text())],
    ],
}

SAYS = {"role": "system", "content": "s"}
BROKEN: list[tuple[str, Any, list[Defect]]] = [
    (OPENAI_CHAT, [], [Defect(Kind.NO_MESSAGES, NOWHERE)]),
    (OPENAI_CHAT, [ASK, "text"], [Defect(Kind.NOT_A_MESSAGE, 1)]),
    (OPENAI_CHAT, [ASK, {"role": "robot", "content": "x"}], [Defect(Kind.UNKNOWN_ROLE, 1)]),
    (OPENAI_CHAT, [{"role": "user", "content": ""}], [Defect(Kind.EMPTY_MESSAGE, 0)]),
    (OPENAI_CHAT, [ASK, {"role": "assistant", "content": None}], [Defect(Kind.EMPTY_MESSAGE, 1)]),
    (OPENAI_CHAT, [ASK, {"role": "user", "content": [{"type": "text"}]}], [Defect(Kind.EMPTY_TEXT, 1)]),
    (OPENAI_CHAT, [ASK, _answers()], [Defect(Kind.ORPHANED_RESULT, 1, "c")]),
    (OPENAI_CHAT, [ASK, _asks(_openai_call())], [Defect(Kind.UNANSWERED_CALL, 1, "c")]),
    (OPENAI_CHAT, [ASK, _asks(_openai_call()), _answers(), _answers()], [Defect(Kind.DUPLICATE_RESULT, 3, "c")]),
    (
        OPENAI_CHAT,
        [ASK, _asks(_openai_call()), ASK, _answers()],
        [Defect(Kind.UNANSWERED_CALL, 1, "c"), Defect(Kind.MISPLACED_RESULT, 3, "c")],
    ),
    (OPENAI_CHAT, [ASK, _asks(_openai_call(arguments="[1]")), _answers()], [Defect(Kind.BAD_ARGUMENTS, 1, "c")]),
    (OPENAI_CHAT, [ASK, _asks(_openai_call(arguments="{")), _answers()], [Defect(Kind.BAD_ARGUMENTS, 1, "c")]),
    (OPENAI_CHAT, [ASK, _asks(_openai_call(arguments={})), _answers()], [Defect(Kind.BAD_ARGUMENTS, 1, "c")]),
    (OPENAI_CHAT, [ASK, _asks(_openai_call(name="")), _answers()], [Defect(Kind.BAD_CALL, 1, "c")]),
    (OPENAI_CHAT, [ASK, {"role": "assistant", "content": "x", "tool_calls": []}], [Defect(Kind.BAD_CALL, 1)]),
    (OPENAI_CHAT, [{"role": "system", "content": [{"type": "image_url"}]}, ASK], [Defect(Kind.BAD_SYSTEM, 0)]),
    (ANTHROPIC_MESSAGES, {"messages": []}, [Defect(Kind.NO_MESSAGES, NOWHERE)]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_text()), 7], [Defect(Kind.NOT_A_MESSAGE, 2)]),
    (ANTHROPIC_MESSAGES, [ASK, {"role": "tool", "content": "x"}], [Defect(Kind.UNKNOWN_ROLE, 1)]),
    (ANTHROPIC_MESSAGES, [ASK, {"role": "assistant", "content": []}, ASK], [Defect(Kind.EMPTY_MESSAGE, 1)]),
    (ANTHROPIC_MESSAGES, [_user(_text(" \n"))], [Defect(Kind.EMPTY_TEXT, 0)]),
    (ANTHROPIC_MESSAGES, [{"role": "user", "content": " "}], [Defect(Kind.EMPTY_TEXT, 0)]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_use()), _user(_result("c", [_text("")]))], [Defect(Kind.EMPTY_TEXT, 2)]),
    (ANTHROPIC_MESSAGES, [_user(_result())], [Defect(Kind.ORPHANED_RESULT, 0, "c")]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_use())], [Defect(Kind.UNANSWERED_CALL, 1, "c")]),
    (
        ANTHROPIC_MESSAGES,
        [ASK, _assistant(_use()), _user(_result(), _result())],
        [Defect(Kind.DUPLICATE_RESULT, 2, "c")],
    ),
    (
        ANTHROPIC_MESSAGES,
        [ASK, _assistant(_use()), ASK, _assistant(_text()), _user(_result())],
        [Defect(Kind.UNANSWERED_CALL, 1, "c"), Defect(Kind.MISPLACED_RESULT, 4, "c")],
    ),
    (
        ANTHROPIC_MESSAGES,
        [ASK, _assistant(_use()), _user(_text(), _result())],
        [Defect(Kind.TEXT_BEFORE_RESULT, 2, "c")],
    ),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_use("c", "{}")), _user(_result())], [Defect(Kind.BAD_ARGUMENTS, 1, "c")]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_use(name="")), _user(_result())], [Defect(Kind.BAD_CALL, 1, "c")]),
    (ANTHROPIC_MESSAGES, [ASK, ASK], [Defect(Kind.CONSECUTIVE_ROLES, 1)]),
    (ANTHROPIC_MESSAGES, [_assistant(_text()), ASK], [Defect(Kind.FIRST_NOT_USER, 0)]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_text(), THINKING), ASK], [Defect(Kind.THINKING_LAST, 1)]),
    (
        ANTHROPIC_MESSAGES,
        [ASK, _assistant(_use()), {"role": "system", "content": "s"}, _user(_result())],
        [Defect(Kind.MISPLACED_SYSTEM, 2)],
    ),
    (ANTHROPIC_MESSAGES, [SAYS, ASK], [Defect(Kind.FIRST_NOT_USER, 0), Defect(Kind.MISPLACED_SYSTEM, 0)]),
    (ANTHROPIC_MESSAGES, [ASK, SAYS, ASK], [Defect(Kind.MISPLACED_SYSTEM, 1)]),
    (ANTHROPIC_MESSAGES, [ASK, _assistant(_text()), SAYS], [Defect(Kind.MISPLACED_SYSTEM, 2)]),
    (ANTHROPIC_MESSAGES, [ASK, SAYS, SAYS, _assistant(_text()), ASK], [Defect(Kind.SYSTEM_IN_A_ROW, 2)]),
    (ANTHROPIC_MESSAGES, [ASK, {"role": "system", "content": [{"type": "image"}]}], [Defect(Kind.BAD_SYSTEM, 1)]),
    (ANTHROPIC_MESSAGES, {"system": 7, "messages": [ASK]}, [Defect(Kind.BAD_SYSTEM, NOWHERE)]),
    (ANTHROPIC_MESSAGES, {"system": [{"type": "image"}], "messages": [ASK]}, [Defect(Kind.BAD_SYSTEM, NOWHERE)]),
    (ANTHROPIC_MESSAGES, {"system": [_text("")], "messages": [ASK]}, [Defect(Kind.EMPTY_TEXT, NOWHERE)]),
    (
        ANTHROPIC_MESSAGES,
        {"system": [MARKED, MARKED], "messages": [_user(MARKED, MARKED, MARKED)]},
        [Defect(Kind.TOO_MANY_CACHE_MARKS, NOWHERE)],
    ),
]


def test_accepts_what_providers_accepted() -> None:
    """No recorded request that a provider answered is refused."""
    wrong = [
        (record["source"], found)
        for record in data.lines(data.need(TRAFFIC))
        if record["format"] in WIRE and record["status"] == 200
        if (found := refused(defects(WIRE[record["format"]], record["body"])))
    ]
    assert [] == wrong


def test_traffic_is_there() -> None:
    """The recorded requests hold both formats, so that the test above tests something."""
    formats = Counter(record["format"] for record in data.lines(data.need(TRAFFIC)) if record["status"] == 200)
    assert {"openai.chat": 42, "anthropic.messages": 47} == {name: formats[name] for name in WIRE}


@pytest.mark.parametrize("format", FORMATS)
def test_accepts_good(format: str) -> None:
    """Prompts in which nothing is wrong have no defect."""
    assert [Counter()] * 4 == [defects(format, messages) for messages in GOOD[format]]


@pytest.mark.parametrize(("format", "body", "expected"), BROKEN, ids=lambda value: str(value)[:24])
def test_rejects_broken(format: str, body: object, expected: list[Defect]) -> None:
    """A prompt that breaks one rule has that defect and no other."""
    assert Counter(expected) == defects(format, body)


@pytest.mark.parametrize("format", FORMATS)
def test_every_rule_is_tried(format: str) -> None:
    """Each kind of defect that a format knows is broken by a test."""
    only = {
        OPENAI_CHAT: set(Kind)
        - {Kind.TEXT_BEFORE_RESULT, Kind.CONSECUTIVE_ROLES, Kind.FIRST_NOT_USER, Kind.THINKING_LAST}
        - {Kind.MISPLACED_SYSTEM, Kind.SYSTEM_IN_A_ROW, Kind.TOO_MANY_CACHE_MARKS},
        ANTHROPIC_MESSAGES: set(Kind),
    }
    assert only[format] == {defect.kind for name, _, expected in BROKEN if name == format for defect in expected}


def test_joined_turns_are_accepted() -> None:
    """Anthropic joins messages of one role, so a call and its result may each stand in a message of its own."""
    joined = [ASK, _assistant(_use("a")), _assistant(_use("b")), _user(_result("a")), _user(_result("b"))]
    found = defects(ANTHROPIC_MESSAGES, joined)
    assert {Kind.CONSECUTIVE_ROLES: 2} == Counter(defect.kind for defect in found)
    assert not refused(found)


def test_old_defects_pass_and_new_ones_do_not() -> None:
    """A defect is old only at its own message and for its own call, not by number."""
    sent = [ASK, _asks(_openai_call("x")), ASK, _asks(_openai_call("y")), _answers("y")]
    dropped = [ASK, _asks(_openai_call("x")), ASK]
    traded = [ASK, ASK, _asks(_openai_call("y"))]
    assert no_new_defects(OPENAI_CHAT, sent, sent)
    assert no_new_defects(OPENAI_CHAT, sent, dropped)
    assert Counter([Defect(Kind.UNANSWERED_CALL, 2, "y")]) == new_defects(OPENAI_CHAT, sent, traded)


def test_second_opinion() -> None:
    """The independent package sees the same breaks, and passes the same old ones."""
    sent = [ASK, _asks(_openai_call("x")), ASK, _asks(_openai_call("y")), _answers("y")]
    assert Counter([("orphaned_tool_use", 1, "x")]) == independent_defects(OPENAI_CHAT, sent)
    assert Counter() == independent_new_defects(OPENAI_CHAT, sent, sent[:3])
    assert Counter([("orphaned_tool_use", 3, "y")]) == independent_new_defects(OPENAI_CHAT, sent, sent[:4])


@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_order_is_a_defect(format: str) -> None:
    """Dropping keeps the order; swapping, repeating and making up do not, unless said to be inserted."""
    sent = [_user(_text("one")), _assistant(_text("two")), _user(_text("three")), _assistant(_text("four"))]
    assert order_kept(format, sent, sent[:1] + sent[2:])
    assert not order_kept(format, sent, [sent[2], sent[1], sent[0], sent[3]])
    assert not order_kept(format, sent, [*sent[:2], sent[1], *sent[2:]])
    made_up = [sent[0], _user(_text("new")), *sent[1:]]
    assert not order_kept(format, sent, made_up)
    assert order_kept(format, sent, made_up, inserted={1})
    assert ((0, 0), (2, 1), (3, 2), (4, 3)) == alignment(format, sent, made_up, {1}).pairs


def test_trimmed_text() -> None:
    """Head, marker and tail stand for a text; other text does not, whatever it says."""
    marker = "[content elided to fit context window — id=abc, 48,210 bytes]"
    assert text_may_stand_for("head middle tail", f"head\n{marker}\ntail")
    assert text_may_stand_for("anything", marker)
    assert not text_may_stand_for("head middle tail", f"head\n{marker}\nother")
    assert not text_may_stand_for("head middle tail", "head tail")


@pytest.mark.parametrize("path", recorded_paths(), ids=lambda path: path.name.split(".")[0])
def test_recorded_runs_are_unworsened_by_themselves(path: Any) -> None:
    """Every prompt of a recorded run, against itself, has nothing new, and its defects do not stop the oracle."""
    run = recorded(path)
    for length in turns(run.messages)[:: max(1, len(run.messages) // 60)]:
        messages = list(run.messages[:length])
        assert no_new_defects(run.format, messages, messages)
        assert order_kept(run.format, messages, messages)


@pytest.mark.parametrize("format", FORMATS)
def test_cutting_synthetic_runs_is_noticed(format: str) -> None:
    """In a run without defects, taking any result away is a new defect in the judgement of both."""
    run = synthetic(3, format, Shape(iterations=12, odd_ids=0, defects=False, bare=0, parallel=1, interruptions=0))
    sent = list(run.messages)
    assert not refused(defects(format, sent))
    for place in [place for place, message in enumerate(sent) if _is_result(format, message)]:
        cut = copy.copy(sent)
        del cut[place]
        assert not no_new_defects(format, sent, cut)
        assert independent_new_defects(format, sent, cut)


def _is_result(format: str, message: Any) -> bool:
    if format == OPENAI_CHAT:
        return bool(message["role"] == "tool")
    return any(block.get("type") == "tool_result" for block in message["content"] if isinstance(block, dict))


@pytest.mark.parametrize("format", FORMATS)
def test_synthetic_runs_are_repeatable_and_rich(format: str) -> None:
    """The same seed gives the same run, and a long one holds what recorded ones hold."""
    run: Run = synthetic(1, format, Shape(iterations=300))
    assert run.body() == synthetic(1, format, Shape(iterations=300)).body()
    text = run.body().decode()
    wanted = ["image", "提", "🙂", "\\u001b[31m"] + (
        ["thinking", "signature", "x_new_block", "cache_control", "is_error"]
        if format == ANTHROPIC_MESSAGES
        else ["reasoning_content", '"tool_call_id": ""']
    )
    assert [] == [word for word in wanted if word not in text]
    assert any(defect.kind is Kind.UNANSWERED_CALL for defect in defects(format, list(run.messages)))
