"""The script is a long investigation of a source that every machine has."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import pytest

from prompt_sidecar.trim.policy import Policy
from tests.lab.demo import stranger
from tests.lab.demo.agent import REMINDER
from tests.lab.demo.investigation import (
    EARLY_FILE,
    LONG_FILE,
    PLAN,
    PLAN_AFTER,
    SIDECAR_TOOLS,
    SWALLOWED,
    TASKS,
    UPDATE_TASK,
    Call,
    Turn,
    done,
)
from tests.lab.demo.plan import after, unfinished
from tests.lab.demo.prompt import LABEL, Prompt
from tests.lab.demo.script import FACT, FOLLOW_UP, OTHER_FACT, OTHER_FILE, SEARCHED_FACT, Notes, script
from tests.lab.demo.tools import Tools

SOURCE = Tools(Path(sysconfig.get_paths()["stdlib"]))
NOTHING = Prompt((), (), {})


def test_a_run_without_recall_is_long_and_uses_every_tool() -> None:
    """Even where nothing can be recalled the run has sixty iterations, and uses every tool."""
    playing = script("neighbour", Notes())
    turns = [next(playing)]
    while True:
        try:
            turns.append(playing.send(NOTHING))
        except StopIteration:
            break
    assert len(turns) >= 60
    assert {"list_dir", "grep", "read_file", "run_python", *SIDECAR_TOOLS} == {
        call.name for turn in turns for call in turn.calls
    }


def test_files_are_there() -> None:
    """Every file that the plan reads is in this interpreter's library, but for the two that it expects not to find."""
    calls = [
        call for turn in PLAN + PLAN_AFTER for call in turn.calls if call.name in ("read_file", "list_dir", "grep")
    ]
    failed = {call.arguments["path"] for call in calls if SOURCE.call(call.name, call.arguments).startswith("error")}
    assert {"asyncio/cancelscope.py", "../../../../etc/hosts"} == failed


@pytest.mark.parametrize(("path", "fact"), [(LONG_FILE, FACT), (OTHER_FILE, OTHER_FACT)])
def test_facts_stand_in_the_middle(path: str, fact: re.Pattern[str]) -> None:
    """Each fact is where capping takes it out: neither in the head that stays nor in the tail."""
    text = SOURCE.read_file(path).encode()
    end = Policy().cap_text_bytes // 2
    middle = text[end : len(text) - end].decode(errors="ignore")
    assert fact.search(middle)
    assert not fact.search(text[:end].decode(errors="ignore"))


def test_the_searched_fact_stands_in_one_place() -> None:
    """It is in the first of two pages of a file that is read whole early on, in nothing else that is read.

    Neither the question nor any other turn says where.
    """
    early = SOURCE.read_file(EARLY_FILE)
    assert 1 == len(SEARCHED_FACT.findall(early))
    assert SEARCHED_FACT.search(early[: len(early) // 2])
    assert len(early.encode()) < Policy().cap_text_bytes
    reads = [turn for turn in PLAN + PLAN_AFTER for call in turn.calls if holds_searched_fact(call)]
    assert reads == [turn for turn in PLAN if Call("read_file", {"path": EARLY_FILE}) in turn.calls]
    assert EARLY_FILE not in FOLLOW_UP


def holds_searched_fact(call: Call) -> bool:
    """Whether what a call of a reading tool answers holds the fact."""
    if call.name not in ("read_file", "list_dir", "grep"):
        return False
    return SEARCHED_FACT.search(SOURCE.call(call.name, call.arguments)) is not None


def test_tasks_of_the_investigation() -> None:
    """Each task is created in the first turn, begun before it is ticked off, and ticked off before the answer."""
    plan = after((), PLAN[0].calls[0], 1)
    assert list(TASKS) == [task.text for task in plan]
    for iteration, turn in enumerate((*PLAN, Turn("", (done(SWALLOWED),)), *PLAN_AFTER), 1):
        for call in turn.calls:
            plan = after(plan, call, iteration) if call.name == UPDATE_TASK else plan
    assert [] == unfinished(plan)
    assert all(0 < task.begun < task.ended for task in plan)


def answered(name: str, content: str) -> Prompt:
    """A prompt whose newest call is of that tool, with that answer."""
    function = {"name": name, "arguments": "{}"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    return Prompt((), (call, {"role": "tool", "tool_call_id": "c", "content": content}), {})


def test_a_broken_call_is_made_anew() -> None:
    """The model repeats a call that broke off if it is told how to, and only then."""
    message = (
        '[notice: bad; accepted: a JSON object; tag=0123456789abcdef]\nExample: update_task({"id": 1, "status": "x"})'
    )
    for content, expected in ((message, done(SWALLOWED)), ("[notice: bad; tag=0123456789abcdef]", None), ("", None)):
        playing = script("neighbour", Notes())
        turns = [next(playing)]
        while not turns[-1].calls[0].written:
            turns.append(playing.send(NOTHING))
        assert '{"id": 2, "status": "completed"' == turns[-1].calls[0].text
        again = playing.send(answered(UPDATE_TASK, content)).calls[0]
        assert (expected == again) is (expected is not None)


def test_the_reminder_is_obeyed() -> None:
    """What the agent names as unfinished is ticked off, and nothing else."""
    playing = script("neighbour", Notes())
    turn = next(playing)
    while turn.calls or turn.user:
        turn = playing.send(NOTHING)
    reminder = {"role": "user", "content": f"{REMINDER}\n10. one thing\n12. another"}
    assert (done(10), done(12)) == playing.send(Prompt((), (reminder,), {})).calls


def test_forgery_is_made_by_the_command() -> None:
    """The forged text is what the command prints, and stands nowhere in its arguments."""
    arguments = stranger.command("abcdefghjk")
    printed = SOURCE.run_python(arguments)
    assert stranger.forged_text("abcdefghjk") in printed
    assert not any(word in " ".join(arguments) for word in (stranger.ORDER, stranger.MADE_UP_ID, "abcdefghjk"))
    assert [stranger.MADE_UP_ID] == [found[1] for found in LABEL.finditer(printed)]
