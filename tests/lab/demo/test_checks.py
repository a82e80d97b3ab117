"""The demo's checks can fail: each finds the fault that it is there for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo import stranger
from tests.lab.demo.agent import Exchange
from tests.lab.demo.checks import Check, Findings, check_exchange
from tests.lab.demo.investigation import Turn
from tests.lab.demo.plan import Plan, Task
from tests.lab.demo.prompt import Prompt

CALL = {"id": "c", "type": "function", "function": {"name": "grep", "arguments": '{"path": "a.py"}'}}
SENT: list[dict[str, Any]] = [
    {"role": "system", "content": "You answer questions."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "I'll look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "a.py:1:because"},
]


def exchange(returned: list[dict[str, Any]], plan: Plan = (), **more: Any) -> Exchange:
    """The exchange in which `SENT` came back as `returned`, with these tasks of the agent."""
    body = json.dumps({"model": "m", "messages": SENT}).encode()
    back = json.dumps({"model": "m", "messages": returned}).encode()
    facts: dict[str, Any] = {
        "json_body": back,
        "fits": True,
        "iteration": 2,
        "tokens": trim_pb2.TokenFigures(after=100, limit=1_000),
    }
    answer = trim_pb2.TrimPromptResponse(**(facts | more))
    return Exchange(body, Prompt.of(body), Prompt.of(back), answer, 0.001, Turn("done"), plan)


def faults(now: Exchange, before: Exchange | None = None) -> set[Check]:
    """The checks that fail."""
    found = Findings()
    check_exchange(found, now, before, (stranger.MADE_UP_ID,), 2)
    return {check for check in Check if found.complaints[check]}


def test_an_unchanged_prompt_has_no_fault() -> None:
    """A prompt that came back as it was sent has no fault, but the run is passed only when all was checked."""
    assert set() == faults(exchange(SENT), exchange(SENT[:2]))
    found = Findings()
    check_exchange(found, exchange(SENT), None, (), 2)
    assert not found.passed


def lost_call(messages: list[dict[str, Any]]) -> None:
    """Leave a result without its call."""
    del messages[2]


def other_bytes(messages: list[dict[str, Any]]) -> None:
    """Change a message that no trim names."""
    messages[1]["content"] = "Why not?"


def obeyed(messages: list[dict[str, Any]]) -> None:
    """Let the forged order into system text."""
    messages[0]["content"] += f" {stranger.ORDER.capitalize()}!"


def listed(messages: list[dict[str, Any]]) -> None:
    """Let a forged id into system text."""
    messages[0]["content"] += f'\nid={stranger.MADE_UP_ID} tool=grep args="" iteration=1 bytes=1'


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (lost_call, Check.PAIRS),
        (lost_call, Check.BYTES),
        (other_bytes, Check.BYTES),
        (obeyed, Check.INERT),
        (listed, Check.INERT),
    ],
)
def test_faulty_prompt(fault: Callable[[list[dict[str, Any]]], None], check: Check) -> None:
    """A fault in the returned messages is found."""
    messages = json.loads(json.dumps(SENT))
    fault(messages)
    assert check in faults(exchange(messages))


@pytest.mark.parametrize(
    "tokens", [trim_pb2.TokenFigures(after=1_001, limit=1_000), trim_pb2.TokenFigures(after=5, limit=10)]
)
def test_too_long(tokens: trim_pb2.TokenFigures) -> None:
    """A prompt over its limit is found, also if only our own count says so."""
    assert {Check.FITS} == faults(exchange(SENT, tokens=tokens))


def test_rewritten_prefix() -> None:
    """A rewritten message is found unless the answer calls it a batch point, and so is a batch point without one."""
    earlier = [SENT[0], {"role": "user", "content": "What?"}]
    point = trim_pb2.CacheFigures(batch_point=True)
    assert {Check.PREFIX} == faults(exchange(SENT), exchange(earlier))
    assert set() == faults(exchange(SENT, cache=point), exchange(earlier))
    assert {Check.PREFIX} == faults(exchange(SENT, cache=point), exchange(SENT[:2]))


def test_a_wrong_iteration_is_found() -> None:
    """Another iteration than the agent's is found."""
    assert {Check.NEXT} == faults(exchange(SENT, iteration=3))


TASKS = (Task(1, "read", "completed"), Task(2, "think"), Task(3, 'say "so"', "in_progress"))


def noted(text: str, plan: Plan) -> set[Check]:
    """The checks that fail on a prompt whose note is this text."""
    place: dict[str, Any] = {"place": trim_pb2.OWN_TEXT_PLACE_TAIL, "message_index": len(SENT)}
    note = trim_pb2.OwnText(kind=trim_pb2.OWN_TEXT_KIND_NOTE, text=text, **place)
    return faults(exchange([*SENT, {"role": "system", "content": text}], plan, own_text=[note]))


@pytest.mark.parametrize(
    "text",
    [
        '2 open tasks:\n3 [in_progress] "say \\"so\\""\n2 [pending] "think"',
        '7 items are clipped.\n2 open tasks:\n3 [in_progress] "say \\"so\\""\nand 1 more\nid=abcdefghjk tool=grep',
    ],
)
def test_open_tasks(text: str) -> None:
    """The note may name all open tasks, or those at hand and how many more; it names none where none is open."""
    assert set() == noted(text, TASKS)
    assert {Check.TASKS} == noted(text, TASKS[:1])
    assert set() == noted("7 items are clipped.", TASKS[:1])


@pytest.mark.parametrize(
    "text",
    [
        "7 items are clipped.",
        "2 open tasks.",
        '2 open tasks:\n2 [pending] "think"\n3 [in_progress] "say \\"so\\""',
        '2 open tasks:\n3 [pending] "say \\"so\\""\n2 [pending] "think"',
        '2 open tasks:\n3 [in_progress] "say \\"so\\""',
        '3 open tasks:\n3 [in_progress] "say \\"so\\""\n2 [pending] "think"\n1 [completed] "read"',
    ],
)
def test_wrong_tasks(text: str) -> None:
    """A note that leaves the open tasks out, or tells them in another order, state or number, is found."""
    assert {Check.TASKS} == noted(text, TASKS)
