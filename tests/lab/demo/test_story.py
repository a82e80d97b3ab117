"""The story keeps to 80 columns, and tells it when nothing was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prompt_sidecar.v1 import search_pb2, tool_pb2, trim_pb2
from tests.lab.demo.agent import Agent, Answered, Exchange
from tests.lab.demo.investigation import SEARCH, UPDATE_TASK, Call, Turn
from tests.lab.demo.plan import Task
from tests.lab.demo.prompt import Prompt
from tests.lab.demo.script import Notes
from tests.lab.demo.summary import WIDTH, story
from tests.lab.demo.tools import Tools

WORDS = "words " * 40


def told(notes: Notes) -> list[str]:
    """The story of a run with one task, one call that broke off and one search."""
    stub: Any = None  # it calls nobody here
    agent = Agent(stub, "run", Tools(Path()), ())
    agent.plan = (Task(1, "read", "completed", 2, 9), Task(2, "think", "in_progress", 3))
    agent.completion = [[], [2]]
    broken = Call(UPDATE_TASK, {"id": 1}, written='{"id": 1')
    content = f"[notice: {WORDS}; tag=0]\nExample: {WORDS}"
    found = tool_pb2.CallToolResponse(content=f"{WORDS}\n{WORDS}\n", found=search_pb2.SearchHistoryResponse())
    agent.answered = [
        Answered("a", 1, broken, tool_pb2.CallToolResponse(content=content), None, ()),
        Answered("b", 2, Call(SEARCH, {"query": "rare"}), found, None, ()),
    ]
    note = trim_pb2.OwnText(kind=trim_pb2.OWN_TEXT_KIND_NOTE, text=f"1 open task:\n{WORDS}")
    empty = Prompt((), (), {})
    exchange = Exchange(b"", empty, empty, trim_pb2.TrimPromptResponse(own_text=[note]), 0.1, Turn(""))
    return list(story(agent, [exchange], notes, "ok"))


def test_no_line_is_wider_than_a_screen() -> None:
    """No line is wider than a screen of 80 columns; what the sidecar said loses no word."""
    lines = told(Notes(fact=("9", "1"), fact_id="abcdefghjk"))
    assert all(len(line) <= WIDTH for line in lines)
    assert 120 <= sum(line.split().count("words") for line in lines)


def test_each_task_has_its_state() -> None:
    """Each task is told with its state."""
    lines = told(Notes())
    assert "    ok  1 read" + " " * 46 + "iterations 2-9" in lines
    assert "    -  2 think" + " " * 45 + "in_progress" in lines


def test_nothing_recalled() -> None:
    """A run in which nothing was found tells so, and does not fail on it."""
    assert "recall          0 facts that were not in the prompt" == told(Notes())[-1]
