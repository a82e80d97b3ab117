"""What the demo shows: the table's rows, and the story at the end."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from prompt_sidecar.v1 import search_pb2, tool_pb2, trim_pb2
from tests.lab.demo.agent import Agent, Answered, Exchange
from tests.lab.demo.investigation import SEARCH, UPDATE_TASK, Call, Turn
from tests.lab.demo.plan import Task
from tests.lab.demo.prompt import Prompt
from tests.lab.demo.script import Notes
from tests.lab.demo.summary import WIDTH, story
from tests.lab.demo.table import CAPTION, Lines, LiveTable, Row
from tests.lab.demo.tools import Tools

WORDS = "words " * 40


def lines_of(notes: Notes) -> list[str]:
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
    lines = lines_of(Notes(fact=("9", "1"), fact_id="abcdefghjk"))
    assert all(len(line) <= WIDTH for line in lines)
    assert 120 <= sum(line.split().count("words") for line in lines)


def test_each_task_has_its_state() -> None:
    """Each task is told with its state."""
    lines = lines_of(Notes())
    assert "    ok  1 read" + " " * 46 + "iterations 2-9" in lines
    assert "    -  2 think" + " " * 45 + "in_progress" in lines


def test_nothing_recalled() -> None:
    """A run in which nothing was found tells so, and does not fail on it."""
    assert "recall          0 facts that were not in the prompt" == lines_of(Notes())[-1]


ROW = Row(
    iteration=123,
    step="read a/very/long/path/to/some/module.py",
    before=1_234_567,
    after=28_000,
    limit=31_000,
    kept=0.034,
    batch_point=True,
    elided=12,
    clipped=345,
    dropped=678,
    milliseconds=1234.5,
)
FIRST = replace(ROW, iteration=1, step="list", before=394, after=481, kept=None, batch_point=False, milliseconds=1.26)


def test_the_caption_fits() -> None:
    """The legend fits as well."""
    assert all(len(line) <= 80 for line in CAPTION.splitlines())


def test_plain_lines_have_a_head_and_no_escapes() -> None:
    """Plain lines have a head, stay within 80 columns, and hold no escapes."""
    out = io.StringIO()
    with Lines(Console(file=out)) as lines:
        lines.show(FIRST)
        lines.show(replace(ROW, before=123_456))
    *_, head, first, last = out.getvalue().splitlines()
    assert "  # step                       before  after  limit kept * elid clip drop    ms" == head
    assert "  1 list                          394    481 31,000          12  345  678   1.3" == first
    assert "123 read a/very/long/path/to… 123,456 28,000 31,000   3% *   12  345  678 1234.5" == last
    assert "\x1b" not in out.getvalue()


def test_the_whole_table_is_left_at_the_end() -> None:
    """On a terminal of 80 columns the whole table is left at the end, more rows than the screen holds."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=10, color_system=None)
    with LiveTable(console) as table:
        for iteration in range(1, 31):
            table.show(replace(ROW, iteration=iteration, before=123_456, milliseconds=9.9))
    shown = [line.rstrip() for line in out.getvalue().rpartition("step")[2].splitlines()]
    rows = [line for line in shown if line.lstrip()[:1].isdigit()]
    assert [str(iteration) for iteration in range(1, 31)] == [row.split()[0] for row in rows]
    assert all(len(line) <= 80 for line in shown)
